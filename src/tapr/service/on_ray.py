"""`tapr serve --on ray`: the replicas of a server as deployments of Ray Serve.

Each replica is an application of Ray Serve with one process, so that a call reaches that one and no
other; Ray's own multiplexing only prefers a replica, and would adapt one stream in two places. Ray
keeps the processes alive and chooses their machines; HTTP stays with the server (`server`).
"""

from __future__ import annotations

import hashlib
import logging
import os
import secrets
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from typing import Any

from tapr.errors import DataError, InputError
from tapr.service.cluster import Call, Cluster, Gone, Replica
from tapr.service.front import log_lines
from tapr.service.plan import Plan

GRACE = 30  # seconds for a replica to save its streams when Ray stops it


class Deployed(Replica):
    """A replica in a process of Ray's."""

    def __init__(self, plan: Plan) -> None:
        log_lines()  # into Ray's logs
        super().__init__(plan)

    def __del__(self) -> None:  # what Ray Serve calls when it stops a replica
        self._engine.close()


def cluster(plan: Plan, replicas: int, address: str | None = None) -> Cluster:
    """Start replicas, on the Ray cluster at `address` or on a Ray of our own on this machine."""
    _import_ray(address)
    settings = replace(plan.settings, folder=plan.settings.folder.absolute())
    # What is wrong with the model, the method or the folder is said before Ray starts.
    here = replace(plan, settings=replace(settings, alarm="")).engine()
    try:
        _connect(replicas, address)
        sent = replace(plan, settings=replace(settings, journal=False, tokens=None))
        call, stop = _deploy(sent, replicas)
    except BaseException:
        here.close()
        raise
    return Cluster(here, call, replicas, stop)


def _import_ray(address: str | None) -> None:
    """Import Ray with our settings, which it reads when it is imported."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing phones home
    if address is None:
        # Whoever reaches Ray's ports can run code. A token of this run keeps others out; by itself
        # Ray would write one into the home folder.
        os.environ["RAY_AUTH_MODE"], os.environ["RAY_AUTH_TOKEN"] = "token", secrets.token_hex(32)
    _needed("ray.serve")


def _connect(processes: int, address: str | None) -> None:
    """Connect to a cluster, or start a Ray on this machine."""
    ray, own = _needed("ray"), {}
    if address is None:
        cores = max(processes, os.cpu_count() or 1)
        own = {"num_cpus": cores, "include_dashboard": False}
    try:
        ray.init(address or "local", log_to_driver=False, logging_level=logging.ERROR, **own)
    except Exception as error:  # Ray raises plain ones, too
        raise DataError(f"cannot reach Ray at {address or 'this machine'}: {error}") from error


def _needed(module: str) -> Any:
    """A module of Ray, or a sentence that it is not installed."""
    try:
        return import_module(module)
    except ImportError as error:
        raise InputError(
            f"tapr serve --on ray needs the package {error.name}, which is not installed:"
            " pip install 'torch-tapr[serve-ray]'"
        ) from error


def _deploy(plan: Plan, replicas: int) -> tuple[Call, Callable[[], None]]:
    """The replicas as applications of Ray Serve: how to call them, and how to stop them."""
    ray, serve = _needed("ray"), _needed("ray.serve")
    logging.getLogger("ray.serve").setLevel(logging.ERROR)
    serve.start(proxy_location="Disabled")  # our own server speaks HTTP
    # Named after the folder, which only one server has: nobody else's application is replaced.
    folder = hashlib.sha256(str(plan.settings.folder).encode()).hexdigest()[:8]
    names = [f"tapr-{folder}-{number}" for number in range(replicas)]
    deployment = serve.deployment(
        Deployed,
        num_replicas=1,
        max_ongoing_requests=4 * plan.settings.max_queue,  # the engine's own queue is bounded
        graceful_shutdown_timeout_s=GRACE,
        health_check_period_s=2,
        ray_actor_options={"num_cpus": 1, "num_gpus": int(plan.device.startswith("cuda"))},
    )
    handles = serve.run_many(
        [serve.RunTarget(deployment.bind(plan), name=name, route_prefix=None) for name in names]
    )

    async def call(number: int, what: str, *arguments: Any) -> Any:
        try:
            return await getattr(handles[number], what).remote(*arguments)
        except ray.exceptions.RayTaskError as error:  # the replica's own exception
            raise error.cause from None
        except (ray.exceptions.RayError, serve.exceptions.RayServeException) as error:
            raise Gone from error

    def stop() -> None:
        for name in names:
            serve.delete(name)
        ray.shutdown()

    return call, stop
