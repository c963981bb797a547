"""`tapr serve --on ray`: the replicas of a server as deployments of Ray Serve.

Each replica is an application of Ray Serve with one process, so that a call reaches exactly that
process. Ray's own multiplexing only prefers a replica: it could adapt one stream in two places. Ray
keeps the processes alive and chooses their machines. HTTP stays with our server (`server`).
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from tapr import with_ray
from tapr.service.cluster import Call, Cluster, Gone, Replica
from tapr.service.front import log_lines
from tapr.service.plan import Plan

GRACE = 30  # seconds for a replica to save its streams when Ray stops it


class Deployed(Replica):
    """A replica in a process that Ray runs."""

    def __init__(self, plan: Plan) -> None:
        log_lines()  # into Ray's logs
        super().__init__(plan)

    def __del__(self) -> None:  # Ray Serve calls this when it stops a replica
        self._engine.close()


def cluster(plan: Plan, replicas: int, address: str | None = None) -> Cluster:
    """Start replicas on the Ray cluster at `address`, or on a Ray that we start on this machine."""
    settings = replace(plan.settings, folder=plan.settings.folder.absolute())
    cores = max(replicas, os.cpu_count() or 1)
    # Problems of the model, the method or the folder are reported before Ray starts.
    here = replace(plan, settings=replace(settings, alarm="")).engine()
    begun = ExitStack()
    try:
        ray = begun.enter_context(with_ray.connected(address, {}, num_cpus=cores))
        sent = replace(plan, settings=replace(settings, journal=False, tokens=None))
        call, stop = _deploy(ray, sent, replicas)
        begun.callback(stop)
    except BaseException:
        begun.close()
        here.close()
        raise
    return Cluster(here, call, replicas, begun.close)


def application(folder: Path, replica: int) -> str:
    """The name of a replica's application.

    It is made from the folder, which belongs to one server only, so that no other server's
    application is replaced.
    """
    return f"tapr-{hashlib.sha256(str(folder).encode()).hexdigest()[:8]}-{replica}"


def _deploy(ray: Any, plan: Plan, replicas: int) -> tuple[Call, Callable[[], None]]:
    """Deploy the replicas on Ray Serve; return a function to call them and one to stop them."""
    serve = with_ray.module("ray.serve")
    logging.getLogger("ray.serve").setLevel(logging.ERROR)
    serve.start(proxy_location="Disabled")  # our own server speaks HTTP
    names = [application(plan.settings.folder, number) for number in range(replicas)]
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

    return call, stop
