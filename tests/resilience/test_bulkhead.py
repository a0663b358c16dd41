"""Semantics 21: a place taken is a place given back, whatever happens."""

import random
import threading

import pytest

from resilience.breaker import BreakerPolicy
from resilience.bulkhead import Bulkhead, BulkheadPolicy
from resilience.chain import Chain, ChainPolicy
from resilience.deadline import Deadline
from resilience.errors import BulkheadFull, ClientError, NotSent, OutcomeUnknown, RateLimited, ServerError
from resilience.ratelimit import LimiterPolicy
from resilience.resolver import Resolver


def test_a_full_bulkhead_refuses_at_once():
    bulkhead = Bulkhead(BulkheadPolicy(2), name="gateway")
    with bulkhead.place(), bulkhead.place():
        assert bulkhead.available == 0
        with pytest.raises(BulkheadFull, match="gateway: all 2 places are taken"), bulkhead.place():
            pass
    assert (bulkhead.available, bulkhead.rejected.value) == (2, 1)


def test_three_of_ten_slow_calls_are_admitted_and_never_four():
    """OP-06."""
    bulkhead = Bulkhead(BulkheadPolicy(3))
    inside, peak, refused = 0, 0, 0
    counting, ready, leave = threading.Lock(), threading.Barrier(10), threading.Event()
    decided = threading.Semaphore(0)

    def call():
        nonlocal inside, peak, refused
        ready.wait()
        try:
            with bulkhead.place():
                with counting:
                    inside += 1
                    peak = max(peak, inside)
                decided.release()
                leave.wait(5)
        except BulkheadFull:
            with counting:
                refused += 1
            decided.release()

    threads = [threading.Thread(target=call) for _ in range(10)]
    [thread.start() for thread in threads]
    for _ in range(10):
        assert decided.acquire(timeout=5)
    leave.set()
    [thread.join() for thread in threads]
    assert (peak, refused, bulkhead.available) == (3, 7, 3)


OUTCOMES = [
    None,
    ServerError(status=500),
    ClientError(status=402),
    OutcomeUnknown(),
    KeyboardInterrupt(),
    ValueError(),
]


def test_five_hundred_mixed_outcomes_leave_every_capacity_exact():
    """OP-06."""
    policy = ChainPolicy(
        "gateway",
        1.0,
        breaker=BreakerPolicy(window=20, min_calls=20, failure_rate=80, open_seconds=0.001),
        limiter=LimiterPolicy(3, 0.001),
        bulkhead=BulkheadPolicy(3),
    )
    chain = Chain(policy)
    surprises = []

    def caller(seed):
        dice = random.Random(seed)
        for _ in range(50):
            error = dice.choice(OUTCOMES)

            def operation(deadline, error=error):
                if error is not None:
                    raise error

            try:
                chain.call(operation, deadline=Deadline.after_ms(dice.choice([0, 100, 1000])))
            except BaseException as seen:
                if seen is not error and not isinstance(seen, NotSent):
                    surprises.append(seen)

    threads = [threading.Thread(target=caller, args=(seed,)) for seed in range(10)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert surprises == []
    assert chain.bulkhead.available == 3
    assert len(chain.limiter._tokens) == 3
    seen = chain.snapshot()
    assert seen.failed_without_retry + seen.successful_without_retry == 500


def test_a_rejection_further_in_gives_the_outer_permits_back():
    chain = Chain(
        ChainPolicy(
            "gateway", 1.0, breaker=BreakerPolicy(half_open_calls=1, jitter=0), limiter=LimiterPolicy(1, 3600)
        )
    )
    chain.call(lambda deadline: None, deadline=Deadline.after_ms(1000))
    for _ in range(50):
        with pytest.raises(RateLimited):
            chain.call(lambda deadline: None, deadline=Deadline.after_ms(1000))
    assert chain.breaker.stage._running == {}


def test_a_thread_bulkhead_exists_only_for_name_lookups():
    release = threading.Event()

    def hangs(*args, **kwargs):
        release.wait(10)
        return []

    resolver = Resolver(most_threads=2, lookup=hangs)
    for _ in range(5):
        with pytest.raises(TimeoutError):
            resolver.addresses("gateway.example", 80, 0.01)
    stuck = [thread for thread in threading.enumerate() if thread.name == "resilience-resolver"]
    release.set()
    [thread.join(5) for thread in stuck]
    assert len(stuck) == 2
    assert resolver.addresses("gateway.example", 80, 5) == []  # the places came back


@pytest.mark.parametrize("number", [0, -1, 10_001])
def test_a_bulkhead_policy_refuses_nonsense_with_a_sentence(number):
    with pytest.raises(ValueError, match="max_concurrent must be between 1 and 10,000"):
        BulkheadPolicy(number)
