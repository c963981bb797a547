"""The plain loop (a), tapr (b) and the bound (c) on the same batches, taking turns.

    python -m benchmarks.adapt [--models cifar10-small,resnet-20] [--methods pest,tent,norm]
        [--rounds 3] [--threads 2] [--json results/performance.json]
        [--parts time,memory,measures,neighbour,forgone,probe,votes,guard]

(a) is `benchmarks/plain_loop.py`: views by PIL, image by image, eager, contiguous, the allocator as
it comes. (b) is `tapr.adapt(model, method, layout="probe")` after `tapr.keep_memory()`. (c) is
nothing but the forwards and backwards that the method needs, on ready-made views, in the quicker of
the two layouts, with kept memory: no views, no loss worth its name, no optimiser, no guard. Beside
them stands "products": as many FLOPs as products of matrices, a processor's easiest work.

The sides take turns within each round, each after an untimed forward and backward; medians over the
rounds, and their range. (b) and (c) share a process. (a) has one of its own, which waits while the
others run: what `mallopt` did to a process cannot be undone, a heap that was kept stays. Memory is
measured apart, as the peak above what the process held before the side was made, over two steps.
`measures` (what each measure buys) and `neighbour` (beside a busy process) take one step per batch,
each side in a process of its own. `forgone` times what views made meanwhile and an inference-mode
prediction could save at the most. `probe` asks for the quicker layout once in each round. `votes`
sets steady, whose method is always the same there, beside three bare forwards and beside Tent.
`guard` says what the health costs beyond its shadow forwards.
"""

import argparse
import ctypes
import json
import multiprocessing
import os
import resource
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from functools import partial
from multiprocessing import Pipe
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch
from benchmarks import plain_loop
from benchmarks.views import photographs
from torch import Tensor, nn

import tapr
from tapr.adapters import guard, shadow
from tapr.adapters.votes import Votes
from tapr.augment import AugMix, Views
from tapr.models import build, load
from tapr.models import layout as layouts
from tapr.models.layout import Layout, arrange, matching
from tapr.models.scope import SCOPES
from tapr.models.statistics import Statistics

Side = Callable[[Tensor], Tensor]


class Setting(NamedTuple):
    batch: int = 200
    side: int = 32
    steps: int = 5  # of PEST; one in the large models, so that a round takes a minute


SETTINGS = {
    "cifar10-small": Setting(),
    "resnet-20": Setting(),
    "wrn-40-2": Setting(steps=1),
    "resnet-50": Setting(batch=16, side=224, steps=1),
}
VIEWS = {"pest": 3, "tent": 1, "norm": 1}


class Turn(NamedTuple):
    seconds: float
    cpu: float
    faults: int


def model_of(name: str) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = load(name) if name.endswith("small") else build(name, 10).eval()
    arrange(model, "contiguous")  # as people have it
    return model


def ours(
    model: nn.Module, method: str, setting: Setting, layout: Layout = "probe", **options: Any
) -> tapr.Adapter:
    if method == "pest":
        options["steps"] = setting.steps
    return tapr.adapt(model, method, layout=layout, **options)


def bound(model: nn.Module, method: str, setting: Setting, layout: Layout = "probe") -> Side:
    """The method's forwards and backwards alone."""
    model = deepcopy(model)
    arrange(model, layout)
    scope = SCOPES["norm" if method == "tent" else "all"](model)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(scope(name, parameter) and method != "norm")
    moving = [p for p in model.parameters() if p.requires_grad]
    norms = Statistics("running" if method == "pest" else "batch").policy(model)
    generator, views = torch.Generator().manual_seed(0), Views(AugMix(), VIEWS[method] - 1)
    ready: dict[int, Tensor] = {}

    def passes(images: Tensor) -> Tensor:
        if id(images) not in ready:
            if layout == "probe":
                layouts.probe(model, images)
            ready[id(images)] = matching(model, views(images, generator))
        logits = images
        for _ in range(setting.steps if method == "pest" else method == "tent"):
            with norms.adapting(VIEWS[method]):
                logits = model(ready[id(images)])
            torch.autograd.grad(logits.square().mean(), moving)
        if method != "tent":
            with torch.no_grad(), norms.predicting():
                logits = model(matching(model, images))
        return logits.detach()

    return passes


def products(flops: int, side: int = 512) -> Side:
    """As many floating-point operations, all of them in products of square matrices."""
    matrix, product = torch.rand(side, side), torch.empty(side, side)

    def multiply(images: Tensor) -> Tensor:
        for _ in range(round(flops / (2 * side**3))):
            torch.mm(matrix, matrix, out=product)
        return product

    return multiply


def measured(call: Callable[[], object]) -> Turn:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    cpu, started = time.process_time(), time.perf_counter()
    call()
    seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
    return Turn(seconds, cpu, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)


def a_batch(setting: Setting) -> Tensor:
    return photographs(setting.batch, setting.side, torch.Generator().manual_seed(0))


class Taker(NamedTuple):
    """A side with a process of its own: the plain loop, or tapr in a layout."""

    layout: Layout = "contiguous"
    plain: bool = False
    kept: bool = False  # is memory kept?
    option: str | None = None  # of tapr, to be turned on
    passive: bool = False  # do idle threads sleep (OMP_WAIT_POLICY), or spin as they come?


def serve(pipe: Any, taker: Taker, name: str, method: str, setting: Setting, threads: int) -> None:
    """The process of a taker: a turn for each word that comes."""
    torch.set_num_threads(threads)
    if taker.kept:
        tapr.keep_memory()
    model, images = model_of(name), a_batch(setting)
    one = bound(model, method, setting._replace(steps=1), taker.layout)
    options = {taker.option: True} if taker.option else {}
    side: Side = (
        plain_loop.METHODS[method](model, setting.steps)
        if taker.plain
        else ours(model, method, setting, taker.layout, **options)
    )
    side(images)  # the optimiser has its memory, what is compiled is compiled
    pipe.send("ready")
    while pipe.recv():
        one(images)
        pipe.send(measured(lambda: side(images)))


@contextmanager
def apart(taker: Taker, name: str, method: str, setting: Setting) -> Iterator[Callable[[], Turn]]:
    """Turns taken in a process of its own, which waits between them."""
    here, there = Pipe()
    arguments = (there, taker, name, method, setting, torch.get_num_threads())
    process = multiprocessing.Process(target=serve, args=arguments, daemon=True)
    if taker.passive:
        os.environ["OMP_WAIT_POLICY"] = "PASSIVE"  # read when the process loads torch
    process.start()
    os.environ.pop("OMP_WAIT_POLICY", None)
    here.recv()

    def turn() -> Turn:
        here.send(True)
        return Turn(*here.recv())

    yield turn
    here.send(False)
    process.join()


def in_turns(takers: dict[str, Callable[[], Turn]], rounds: int) -> dict[str, list[Turn]]:
    turns: dict[str, list[Turn]] = {taker: [] for taker in takers}
    for _ in range(rounds):
        for taker, take in takers.items():
            turns[taker].append(take())
    return turns


def timed(name: str, method: str, rounds: int) -> dict[str, Any]:
    setting, model = SETTINGS[name], model_of(name)
    images = a_batch(setting)
    adapter, limit = ours(model, method, setting), bound(model, method, setting)
    one = bound(model, method, setting._replace(steps=1))
    for side in (adapter, limit):  # the layout is found, the optimiser has its memory
        side(images)
    same = products(adapter.cost(images.shape).flops)

    def turn(side: Side) -> Turn:
        one(images)
        return measured(lambda: side(images))

    with apart(Taker(plain=True), name, method, setting) as plain:
        sides: dict[str, Side] = {"tapr": adapter, "bound": limit, "products": same}
        own = {title: partial(turn, side) for title, side in sides.items()}
        turns = in_turns({"plain": plain, **own}, rounds)
    result: dict[str, Any] = {side: _summary(own, setting.batch) for side, own in turns.items()}
    result["plain / tapr"] = _ratios(turns["plain"], turns["tapr"])
    result["tapr / bound"] = _ratios(turns["tapr"], turns["bound"])
    result["plain / products"] = _ratios(turns["plain"], turns["products"])
    result["layout"] = adapter.layout
    return result


def _summary(turns: list[Turn], batch: int) -> dict[str, Any]:
    seconds = [turn.seconds for turn in turns]
    return {
        "seconds": median(seconds),
        "range": [min(seconds), max(seconds)],
        "images_per_second": batch / median(seconds),
        "cpu_seconds": median(turn.cpu for turn in turns),
        "page_faults": int(median(turn.faults for turn in turns)),
    }


def _ratios(above: list[Turn], below: list[Turn]) -> dict[str, Any]:
    """Round by round, so that a neighbour's load falls on both."""
    seconds = [a.seconds / b.seconds for a, b in zip(above, below, strict=True)]
    cpu = [a.cpu / b.cpu for a, b in zip(above, below, strict=True)]
    return {"seconds": median(seconds), "range": [min(seconds), max(seconds)], "cpu": median(cpu)}


def peak(make: Callable[[], Side], images: Tensor) -> float:
    """MiB at the most while a side is made and takes two batches, above what was held before."""
    ctypes.CDLL(None).malloc_trim(0)
    before = _status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    side = make()
    for _ in range(2):
        side(images)
    return (_status("VmHWM") - before) / 1024


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1])


def memory(name: str, method: str, rounds: int) -> dict[str, Any]:
    setting, model = SETTINGS[name]._replace(steps=2), model_of(name)
    images = a_batch(setting)
    found: dict[str, Callable[[], Side]] = {
        "tapr": lambda: ours(model, method, setting),
        "bound": lambda: bound(model, method, setting),
    }
    for make in found.values():  # what is set up once, by the libraries and by the probe, is there
        make()(images)
    seen: dict[str, list[float]] = {side: [] for side in found}
    for _ in range(rounds):
        for side, make in found.items():
            seen[side].append(peak(make, images))
    peaks = {side: median(own) for side, own in seen.items()}
    predicted = ours(model, method, setting).cost(images.shape).memory / 2**20
    return {**peaks, "ratio": peaks["tapr"] / peaks["bound"], "predicted": predicted}


def measures(name: str, method: str, rounds: int) -> dict[str, Any]:
    """What each measure buys, at one step: speed relative to the plain loop."""
    setting = SETTINGS[name]._replace(steps=1)
    takers = {
        "plain": Taker(plain=True),
        "batched views": Taker(),
        "and kept memory": Taker(kept=True),
        "and channels_last": Taker("channels_last"),
        "and both": Taker("channels_last", kept=True),
        "and compiled": Taker("channels_last", kept=True, option="compile"),
        "and amp instead": Taker("channels_last", kept=True, option="amp"),
    }
    turns = _all_apart(takers, name, method, setting, rounds)
    ratios = {title: _ratios(turns["plain"], own) for title, own in turns.items()}
    faults = {title: _summary(own, setting.batch)["page_faults"] for title, own in turns.items()}
    return {"times plain": ratios, "page faults": faults}


def neighbour(name: str, method: str, rounds: int) -> dict[str, Any]:
    """What idle threads that spin cost beside a process that keeps one core busy."""
    setting = SETTINGS[name]._replace(steps=1)
    best = Taker("channels_last", kept=True)
    takers = {"default": best, "passive": best._replace(passive=True)}
    found: dict[str, Any] = {}
    for where in ("alone", "beside"):
        busy = multiprocessing.Process(target=_spin if where == "beside" else None, daemon=True)
        busy.start()
        turns = _all_apart(takers, name, method, setting, rounds)
        busy.kill()
        found[where] = {waiting: _summary(own, setting.batch) for waiting, own in turns.items()}
        found[where]["default / passive"] = _ratios(turns["default"], turns["passive"])
    return found


def _spin() -> None:
    while True:
        pass


def forgone(name: str, method: str, rounds: int) -> dict[str, Any]:
    """A batch by tapr; its views alone; its prediction without gradients, and in inference mode."""
    setting, model = SETTINGS[name], model_of(name)
    images, adapter = a_batch(setting), ours(model, method, setting)
    generator, views = torch.Generator().manual_seed(0), Views(AugMix(), VIEWS[method] - 1)
    adapter(images)
    arrange(model, adapter.layout)
    matched = matching(model, images)
    takers: dict[str, Callable[[], object]] = {
        "batch": lambda: adapter(images),
        "views": lambda: views(images, generator),
        "no_grad": lambda: torch.no_grad()(model)(matched),
        "inference_mode": lambda: torch.inference_mode()(model)(matched),
    }
    turns = in_turns({title: partial(measured, call) for title, call in takers.items()}, rounds)
    result: dict[str, Any] = {side: _summary(own, setting.batch) for side, own in turns.items()}
    result["views / batch"] = _ratios(turns["views"], turns["batch"])
    result["no_grad / inference_mode"] = _ratios(turns["no_grad"], turns["inference_mode"])
    return result


def probing(name: str, method: str, rounds: int) -> dict[str, Any]:
    """How often each layout is found the quicker one, and how long that takes."""
    setting = SETTINGS[name]
    model, images = ours(model_of(name), method, setting).model, a_batch(setting)
    found, turns = Counter[str](), []
    for _ in range(rounds):
        layouts._found.clear()
        turns.append(measured(lambda: found.update([layouts.probe(model, images)])))
    return {"found": dict(found), "seconds": median(turn.seconds for turn in turns)}


def votes(name: str, method: str, rounds: int) -> dict[str, Any]:
    """Steady, three forwards of all images and nothing else, and Tent, in one process."""
    setting, model = SETTINGS[name], model_of(name)
    images = a_batch(setting)
    steady, tent = (ours(model, other, setting, "channels_last") for other in ("steady", "tent"))
    arrange(model, "channels_last")
    three = matching(model, images.repeat(3, 1, 1, 1))
    takers: dict[str, Callable[[], object]] = {
        "steady": lambda: steady(images),
        "three forwards": lambda: torch.no_grad()(model)(three),
        "tent": lambda: tent(images),
    }
    for take in takers.values():
        take()
    turns = in_turns({title: partial(measured, take) for title, take in takers.items()}, rounds)
    result: dict[str, Any] = {side: _summary(own, setting.batch) for side, own in turns.items()}
    result["steady / three"] = _ratios(turns["steady"], turns["three forwards"])
    result["steady / tent"] = _ratios(turns["steady"], turns["tent"])
    result["three / tent"] = _ratios(turns["three forwards"], turns["tent"])
    return result


def guarding(name: str, method: str, rounds: int) -> dict[str, Any]:
    """CPU time of health beyond its shadow forwards, in parts of the whole time of the batches.

    All is taken within the same batches: the time in the guard, without that of the model's
    forwards on the three views; the statistics of layers, which are taken within these, count.
    """
    found = {}
    for size in (200, 64):
        setting = SETTINGS[name]._replace(batch=size)
        for mode in ("watch", "act"):
            adapter = ours(model_of(name), method, setting, "kept", guard=mode)
            found[f"{mode}, batches of {size}"] = _health(adapter, a_batch(setting), rounds)
    return found


def _health(adapter: tapr.Adapter, images: Tensor, rounds: int) -> float:
    clocks = Counter[str]()
    with ExitStack() as stack:
        stack.enter_context(_clocked(clocks, guard.Guard, "judge"))
        stack.enter_context(_clocked(clocks, type(adapter.model), "forward", within="judge"))
        stack.enter_context(_clocked(clocks, Votes, "views", within="judge"))
        stack.enter_context(_clocked(clocks, shadow, "look", within="judge"))
        adapter(images)
        clocks.clear()
        batches = sum(measured(partial(adapter, images)).cpu for _ in range(4 * rounds))
    return (clocks["judge"] - clocks["forward"] - clocks["views"] + clocks["look"]) / batches


@contextmanager
def _clocked(clocks: Counter[str], owner: Any, name: str, within: str = "") -> Iterator[None]:
    """Count the CPU time spent in a function, or only that within another one."""
    plain: Callable[..., Any] = getattr(owner, name)

    def timed(*given: Any, **options: Any) -> Any:
        clocks[f"in {name}"] += 1
        started = time.process_time()
        try:
            return plain(*given, **options)
        finally:
            clocks[f"in {name}"] -= 1
            if not within or clocks[f"in {within}"]:
                clocks[name] += time.process_time() - started  # type: ignore[assignment]

    setattr(owner, name, timed)
    yield
    setattr(owner, name, plain)


def _all_apart(
    takers: dict[str, Taker], name: str, method: str, setting: Setting, rounds: int
) -> dict[str, list[Turn]]:
    with ExitStack() as stack:
        processes = {
            title: stack.enter_context(apart(taker, name, method, setting))
            for title, taker in takers.items()
        }
        return in_turns(processes, rounds)


PARTS = {
    "time": timed,
    "memory": memory,
    "measures": measures,
    "neighbour": neighbour,
    "forgone": forgone,
    "probe": probing,
    "votes": votes,
    "guard": guarding,
}


def lines(name: str, method: str, part: str, result: dict[str, Any]) -> Iterator[str]:
    if part == "memory":
        yield f"{name:14} {method:5} peak MiB: tapr {result['tapr']:.0f}, bound " + (
            f"{result['bound']:.0f}, ratio {result['ratio']:.2f}, predicted "
            f"{result['predicted']:.0f}"
        )
        return
    if part == "guard":
        shares = (f"{title} {100 * own:.1f} %" for title, own in result.items() if "," in title)
        yield f"{name:14} {method:5} health beyond its forwards: {'; '.join(shares)}"
        return
    if part == "probe":
        yield f"{name:14} {method:5} {result['found']}, {result['seconds']:.2f} s each"
        return
    if part == "measures":
        for title, own in result["times plain"].items():
            low, high = own["range"]
            yield (
                f"{name:14} {method:5} {title:18} {own['seconds']:5.2f} ({low:.2f} to {high:.2f}) "
                f"times plain, CPU {own['cpu']:.2f}, {result['page faults'][title]:9,d} faults"
            )
        return
    if part == "neighbour":
        for where in ("alone", "beside"):
            yield f"{name:14} {method:5} {where}"
            yield from _sides(name, method, result[where])
        return
    yield from _sides(name, method, result)


def _sides(name: str, method: str, result: dict[str, Any]) -> Iterator[str]:
    for side, own in result.items():
        if not isinstance(own, dict):
            continue
        low, high = own["range"]
        if "images_per_second" in own:
            yield (
                f"{name:14} {method:5} {side:14} {own['images_per_second']:8.1f} images/s "
                f"{own['seconds']:7.2f} s ({low:.2f} to {high:.2f}) "
                f"{own['cpu_seconds']:7.2f} CPU-s {own['page_faults']:9,d} faults"
            )
        else:
            yield (
                f"{name:14} {method:5} {side:16} {own['seconds']:.3f} "
                f"({low:.3f} to {high:.3f}), CPU {own['cpu']:.3f}"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--models", default=",".join(SETTINGS))
    parser.add_argument("--methods", default=",".join(VIEWS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    multiprocessing.set_start_method("spawn")
    tapr.keep_memory()
    about = {
        "torch": torch.__version__,
        "threads": arguments.threads,
        "cores": os.cpu_count(),
        "rounds": arguments.rounds,
    }
    kept = arguments.json and arguments.json.exists()
    results: dict[str, Any] = json.loads(arguments.json.read_text()) if kept else {}
    for part in arguments.parts.split(","):
        for name in arguments.models.split(","):
            for method in arguments.methods.split(","):
                result = {**about, **PARTS[part](name, method, arguments.rounds)}
                results[f"{part} {name} {method}"] = result
                print(*lines(name, method, part, result), sep="\n", flush=True)
                if arguments.json:
                    arguments.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
