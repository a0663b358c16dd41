"""The other libraries, each set up to do as much of the same as it can. Missing ones are left out."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from bench.subjects import BIG, FOREVER, Call, noop, opened


def chain_crashbytes() -> Call:
    from crashbytes_resilience import bulkhead, circuit_breaker, pipeline, rate_limiter, retry

    return pipeline(bulkhead(64), rate_limiter(BIG), circuit_breaker(), retry())(noop)


def chain_grit() -> Call:
    from grit import breaker, bulkhead, limiter, policy, retry

    return policy(retry(tries=3), breaker(), limiter(rate=BIG), bulkhead(64))(noop)


def chain_nopanic() -> Call:
    import nopanic

    layers = (
        nopanic.retry(attempts=3, on=OSError),
        nopanic.circuit_breaker(slow_call_duration=2.0),
        nopanic.rate_limit(BIG, max_wait=0),
        nopanic.bulkhead(64, max_wait=0),
    )
    return nopanic.compose(*layers)(noop)


def chain_pyresilience() -> Call:
    import pyresilience as peer

    return peer.resilient(
        retry=peer.RetryConfig(),
        circuit_breaker=peer.CircuitBreakerConfig(sliding_window_size=100, slow_call_duration=2.0),
        rate_limiter=peer.RateLimiterConfig(max_calls=BIG),
        bulkhead=peer.BulkheadConfig(max_concurrent=64),
    )(noop)


def chain_faultshield() -> Call:
    from faultshield import ResiliencePipeline

    pipeline = ResiliencePipeline("bench").add_retry(max_attempts=3)
    pipeline = pipeline.add_circuit_breaker(sliding_window_size=100, slow_call_duration_threshold=2.0)
    return pipeline.add_bulkhead(max_concurrent=64).add_rate_limiter(rate=1e9, capacity=1e9)(noop)


def chain_by_hand() -> Call:
    """What people put together: tenacity, pybreaker, limits and a semaphore."""
    import limits
    import pybreaker
    import tenacity

    limiter = limits.strategies.FixedWindowRateLimiter(limits.storage.MemoryStorage())
    per_second = limits.RateLimitItemPerSecond(BIG)
    places = threading.BoundedSemaphore(64)

    @tenacity.retry(stop=tenacity.stop_after_attempt(3), reraise=True)
    @pybreaker.CircuitBreaker(fail_max=5)
    def call() -> int:
        if not limiter.hit(per_second, "bench") or not places.acquire(blocking=False):
            raise RuntimeError
        try:
            return noop()
        finally:
            places.release()

    return call


def breaker_nopanic() -> Call:
    import nopanic

    return nopanic.circuit_breaker(slow_call_duration=2.0)(noop)


def breaker_pyresilience() -> Call:
    import pyresilience as peer

    config = peer.CircuitBreakerConfig(sliding_window_size=100, slow_call_duration=2.0)
    return peer.resilient(circuit_breaker=config)(noop)


def breaker_interlock() -> Call:
    from interlock import CircuitBreaker

    return CircuitBreaker(name="bench")(noop)


def breaker_fluxgate() -> Call:
    from fluxgate import CircuitBreaker

    return CircuitBreaker()(noop)


def _rejection(protect: Callable[[], Callable[[Call], Call]]) -> Callable[[], Call]:
    return lambda: opened(protect())


def open_crashbytes() -> Any:
    from crashbytes_resilience import circuit_breaker

    return circuit_breaker(recovery_timeout=FOREVER)


def open_resilix() -> Any:
    from resilix import protect

    return protect.circuit(reset_timeout=FOREVER)


def open_circuitbreaker() -> Any:
    from circuitbreaker import CircuitBreaker

    return CircuitBreaker(failure_threshold=5, recovery_timeout=FOREVER)


def open_nopanic() -> Any:
    import nopanic

    return nopanic.circuit_breaker(reset_timeout=FOREVER)


def open_pybreaker() -> Any:
    import pybreaker

    return pybreaker.CircuitBreaker(fail_max=5, reset_timeout=FOREVER)


def open_grit() -> Any:
    from grit import breaker

    return breaker(reset_after=FOREVER)


def open_interlock() -> Any:
    from interlock import CircuitBreaker, Config

    return CircuitBreaker(name="bench", config=Config(wait_duration_in_open=FOREVER))


def open_pyresilience() -> Any:
    import pyresilience as peer

    config = peer.CircuitBreakerConfig(sliding_window_size=100, minimum_calls=10, recovery_timeout=FOREVER)
    return peer.resilient(circuit_breaker=config)


def open_purgatory() -> Any:
    from purgatory import SyncCircuitBreakerFactory

    return SyncCircuitBreakerFactory(default_ttl=FOREVER)("bench")


def open_faultshield() -> Any:
    from faultshield import CircuitBreaker

    return CircuitBreaker(recovery_timeout=FOREVER)


PEERS: list[tuple[str, str, Callable[[], Call]]] = [
    ("chain", "crashbytes-resilience", chain_crashbytes),
    ("chain", "grit-toolkit", chain_grit),
    ("chain", "nopanic", chain_nopanic),
    ("chain", "pyresilience", chain_pyresilience),
    ("chain", "faultshield", chain_faultshield),
    ("chain", "tenacity + pybreaker + limits + semaphore", chain_by_hand),
    ("breaker", "nopanic", breaker_nopanic),
    ("breaker", "pyresilience", breaker_pyresilience),
    ("breaker", "interlock-cb", breaker_interlock),
    ("breaker", "fluxgate", breaker_fluxgate),
    ("open", "crashbytes-resilience", _rejection(open_crashbytes)),
    ("open", "resilix", _rejection(open_resilix)),
    ("open", "circuitbreaker", _rejection(open_circuitbreaker)),
    ("open", "nopanic", _rejection(open_nopanic)),
    ("open", "pybreaker", _rejection(open_pybreaker)),
    ("open", "grit-toolkit", _rejection(open_grit)),
    ("open", "interlock-cb", _rejection(open_interlock)),
    ("open", "pyresilience", _rejection(open_pyresilience)),
    ("open", "purgatory", _rejection(open_purgatory)),
    ("open", "faultshield", _rejection(open_faultshield)),
]
