"""The secret that names owners: made by the first process of a deployment, and stored sealed for the others."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable
from dataclasses import dataclass

from gateway.ensured import ensured
from gateway.errors import ConfigurationError
from gateway.sealing.binding import owner, owner_secret_binding
from gateway.sealing.envelope import Rejected
from gateway.sealing.formats import OWNER_SECRET, split_number
from gateway.sealing.principal import Principal
from gateway.storage.client import RedisClient
from gateway.storage.lua.shared_scripts import REPLACE
from gateway.storage.redis_keys import RedisKeys
from gateway.tokens.key_holder import KeyHolder

log = logging.getLogger("gateway.storage")

SECRET_BYTES = 32


@dataclass(frozen=True, slots=True)
class _Secret:
    record: bytes
    value: bytes
    key_id: bytes


class Owners:
    """Names callers as the store knows them."""

    def __init__(
        self,
        client: RedisClient,
        keys: RedisKeys,
        holder: KeyHolder,
        random_bytes: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        self._client = client
        self._key = keys.owner_secret()
        self._holder = holder
        self._binding = owner_secret_binding(holder.audience)
        self._random_bytes = random_bytes
        self._secret: _Secret | None = None

    def name(self, principal: Principal | None) -> str:
        """Return the owner that stands for a caller. The secret must have been learned."""
        secret = ensured(self._secret, "`Deployment.ensure` has learned it")
        return owner(principal, self._holder.audience, secret.value)

    def proposal(self) -> str:
        """Return the sealed secret for a store that has none: the one known here, or a new one.

        So a store that lost its data gets back the secret that running processes use.
        """
        value = self._random_bytes(SECRET_BYTES) if self._secret is None else self._secret.value
        return self._holder.current.seal(value, self._binding)

    def is_current(self, record: bytes | None) -> bool:
        """Return whether the store's secret is the one known here, sealed with the first key of the ring."""
        known = self._secret
        return known is not None and (record, self._holder.current.key_id) == (known.record, known.key_id)

    async def learn(self, record: bytes) -> None:
        """Use the store's secret, and seal it again if the first key of the ring did not seal it.

        While processes have rings in different orders, they take turns sealing it; the processes that remain decide.

        Raises:
            ConfigurationError: no key opens it.
            TaskStoreDown: the store does not answer.
        """
        known = self._secret
        if known is None or known.record != record:
            self._secret = self._open(record)
            if known is not None and known.value != self._secret.value:
                log.warning("task store lost its data and has a new secret; earlier tasks are unknown")
        await self._renew()

    def check(self, record: bytes) -> None:
        """Raise `ConfigurationError` if no key opens the store's secret."""
        self._open(record)

    async def _renew(self) -> None:
        known, sealer = self._secret, self._holder.current
        if known is None or known.key_id == sealer.key_id:
            return
        renewed = sealer.seal(known.value, self._binding).encode()
        if await self._client.run(REPLACE, [self._key], [known.record, renewed]):
            self._secret = _Secret(renewed, known.value, sealer.key_id)

    def _open(self, record: bytes) -> _Secret:
        number, token = split_number(record)
        if number > OWNER_SECRET.reads:
            raise ConfigurationError(
                "GATEWAY_REDIS_URL: a newer release stored the secret that names the owners of tasks, and this release "
                "cannot read it; start that release, or use another Redis"
            )
        try:
            opened = self._holder.current.open(token.decode("ascii"), self._binding)
        except (Rejected, UnicodeDecodeError):
            raise ConfigurationError(
                "GATEWAY_SEAL_KEYS: none of these keys opens the secret in Redis that names the owners of tasks; use "
                "the keys of the process that wrote it. If those are lost, so are the tasks: stop all processes, "
                f"delete the key {self._key} in Redis, and start them again"
            ) from None
        return _Secret(record, opened.plaintext, opened.key_id)
