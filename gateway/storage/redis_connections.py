"""Connections to one server, made by redis-py. hiredis encodes the commands in C; redis-py would do it in Python."""

from __future__ import annotations

from typing import Any, Final

import hiredis
from redis.asyncio import BlockingConnectionPool
from redis.asyncio.connection import AbstractConnection, Connection, SSLConnection, UnixDomainSocketConnection
from redis.exceptions import RedisError

from gateway.storage.retries import NotReached


class Pool(BlockingConnectionPool):
    """Raises `NotReached` for errors that occur before anything was sent."""

    def make_connection(self) -> AbstractConnection:
        """Return a connection that is not connected yet."""
        made: AbstractConnection = _PACKING[self.connection_class](**self.connection_kwargs)
        return made

    async def get_connection(self, *args: Any, **options: Any) -> Any:
        """Return a connection, or raise `NotReached`."""
        try:
            return await super().get_connection(*args, **options)  # type: ignore[no-untyped-call]
        except (RedisError, OSError) as error:
            raise NotReached(str(error)) from error


class _Packing(AbstractConnection):
    """Encodes commands in C. The keys and arguments of a script are some forty parts, each of them slow in Python."""

    def pack_command(self, *args: Any) -> list[bytes]:
        """Return the encoded command."""
        if " " in args[0]:  # a two-word command of redis-py itself
            return super().pack_command(*args)
        return [hiredis.pack_command(args)]


class _Tcp(_Packing, Connection):
    pass


class _Tls(_Packing, SSLConnection):
    pass


class _Unix(_Packing, UnixDomainSocketConnection):
    pass


_PACKING: Final[dict[type[AbstractConnection], type[_Packing]]] = {
    Connection: _Tcp,
    SSLConnection: _Tls,
    UnixDomainSocketConnection: _Unix,
}
