"""The store is paused, or its replies are lost: an abandoned request never runs later, and uses nothing up."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from gateway.storage.lua.shared_scripts import BEGIN, SPEND
from gateway.storage.lua.task_scripts import CREATE, Script
from loadtest.cluster import Cluster, wait_until
from tests.chaos.customers import PATIENCE_SECONDS, Customers, answer_of, call
from tests.chaos.door import runs
from tests.chaos.ground import Ground
from tests.integration.raw import headers_of

LONG_SECONDS = 9.0
SHORT_SECONDS = 3.0
ORDERS = 10
PAUSES = 6
CHARGES = 100


@pytest.fixture
def customers(tmp_path: Path) -> Iterator[Customers]:
    """Two replicas and a worker behind HAProxy, which know their store."""
    environ = {"GATEWAY_TOOLS": "tests.chaos.tools", "GATEWAY_TASK_PARTITIONS": "2", "TEST_DIRECTORY": str(tmp_path)}
    with Cluster(tmp_path / "cluster", replicas=2, workers=1, redis=True, environ=environ) as cluster:
        customers = Customers(cluster, tmp_path)
        for replica in cluster.replicas:
            message = call("work", {"parts": 0})
            assert customers.http.post(replica.url, json=message, headers=headers_of(message)).status_code == 200
        yield customers
        customers.redis.resume()
        customers.pool.shutdown()
        customers.http.close()


@pytest.mark.parametrize("seconds", [SHORT_SECONDS, LONG_SECONDS])
def test_an_order_that_is_sent_once_while_the_store_stands_still_is_one_task_at_most(
    customers: Customers, seconds: float
) -> None:
    wait_until(customers.is_idle, "the first tasks to end")
    before = len(customers.lines("started"))
    customers.pause(seconds)
    names = [f"order-{number}" for number in range(ORDERS)]
    orders = [customers.pool.submit(customers.post, call("named", {"name": name})) for name in names]
    answers = [order.result() for order in orders]
    wait_until(customers.redis.is_ready, "the store")
    customers.insist(call("named", {"name": "last"}))
    wait_until(lambda: "last" in customers.lines("named") and customers.is_idle(), "all tasks to end")
    ran = customers.lines("named")
    for name, answer in zip(names, answers, strict=True):
        if answer.status_code == 200:
            assert ran.count(name) == 1
        else:
            assert (answer.status_code, answer.json()["error"]["code"]) in {(503, -31001), (504, -31004)}
            assert ran.count(name) <= (0 if answer.status_code == 503 else 1)
    assert len(customers.lines("started")) == before


def test_every_single_use_answer_that_is_given_in_a_pause_ends_in_one_charge(customers: Customers) -> None:
    states = list(customers.pool.map(lambda _: customers.insist(call("charge"))["requestState"], range(CHARGES)))
    payers = iter([(f"payer-{number}", state) for number, state in enumerate(states)])
    for _ in range(PAUSES):
        customers.pause(SHORT_SECONDS)
        paying = [
            customers.pool.submit(customers.insist, call("charge", requestState=state, inputResponses=answer_of(name)))
            for name, state in itertools.islice(payers, -(-CHARGES // PAUSES))
        ]
        for paid in paying:
            assert paid.result()["content"][0]["text"].endswith(" paid")
        wait_until(customers.redis.is_ready, "the store")
    assert sorted(customers.lines("charged")) == sorted(f"payer-{number}" for number in range(CHARGES))


@pytest.mark.parametrize("script", [SPEND, BEGIN], ids=["taken", "begun"])
def test_an_answer_stays_good_where_the_store_did_its_part_and_nobody_heard_of_it(
    start: Callable[..., Ground], script: Script
) -> None:
    ground = start("r1", "r2")
    site = ground.site
    state = site.request("tools/call", {"name": "charge", "arguments": {}})["requestState"]
    given = {"name": "charge", "arguments": {}, "requestState": state, "inputResponses": answer_of("Ada")}
    ground.door.trap(runs(script), ground.door.shut)  # it still runs, but its reply is held
    refused = site.post("tools/call", given)
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, -31001)
    ground.door.open()
    wait_until(lambda: not ground.refused("tools/call", replica=1, **given), "the answer to be taken")
    assert site.lines("charged") == ["Ada"]
    assert site.request("tools/call", given)["content"][0]["text"] == "Ada paid"
    assert site.lines("charged") == ["Ada"]


def test_a_single_use_call_that_may_have_become_a_task_finds_it_when_it_is_repeated(
    start: Callable[..., Ground],
) -> None:
    ground = start("r1", "r2")
    site = ground.site
    state = site.request("tools/call", {"name": "charge_later", "arguments": {}})["requestState"]
    given = {"name": "charge_later", "arguments": {}, "requestState": state, "inputResponses": answer_of("Ada")}
    ground.door.trap(runs(CREATE), ground.door.shut)
    unknown = site.post("tools/call", given)
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (504, -31004)
    ground.door.open()
    other = {**given, "inputResponses": answer_of("Eve")}
    wait_until(lambda: not ground.refused("tools/call", replica=1, **given), "the answer to be taken")
    assert site.post("tools/call", other).status_code == 400
    site.worker("w1")
    task = site.request("tools/call", given)["taskId"]
    assert ground.result(task) == ["Ada paid"]
    assert site.lines("charged") == ["Ada"]
    ground.assert_balanced(task)


@pytest.mark.parametrize("fault", ["frozen", "killed"])
def test_an_order_whose_replica_fails_after_it_has_written_the_task_is_one_task(
    start: Callable[..., Ground], tmp_path: Path, fault: str
) -> None:
    """The balancer itself closes the connection to that replica, and sends the request to another one, once."""
    ground = start("r0")
    environ = {**ground.site.fleet.environ, "GATEWAY_REDIS_URL": ground.site.server.url}
    own = {"r1": {"GATEWAY_REDIS_URL": ground.door.url}}
    with (
        Cluster(tmp_path / "cluster", replicas=2, workers=1, environ=environ, own=own) as cluster,
        httpx.Client(timeout=PATIENCE_SECONDS) as http,
    ):
        assert cluster.balancer is not None
        failing = cluster["r1"]
        trap = ground.door.trap(runs(CREATE), failing.pause if fault == "frozen" else failing.kill, after=True)

        def order(name: str) -> httpx.Response:
            message = call("named", {"name": name})
            answer = http.post(cluster.url, json=message, headers=headers_of(message))
            assert answer.json()["result"]["resultType"] == "task"
            return answer

        orders = [order(f"order-{number}") for number in range(len(cluster.replicas))]  # each has its turn
        assert [answer.headers["x-gateway-replica"] for answer in orders] == ["r2", "r2"]
        trap.wait_done()
        if fault == "frozen":
            failing.resume()
            cluster.balancer.wait_up("r1")
            # It has continued the old request by the time it accepts a new one.
            orders += [order(f"order-{number}") for number in range(len(orders), 2 * len(orders))]
            assert {answer.headers["x-gateway-replica"] for answer in orders[2:]} == {"r1", "r2"}
        names = [f"order-{number}" for number in range(len(orders))]
        wait_until(lambda: set(names) <= set(ground.site.lines("named")), "the tasks")
        wait_until(lambda: ground.queued() == 0, "all tasks to end")
        assert sorted(ground.site.lines("named")) == names
