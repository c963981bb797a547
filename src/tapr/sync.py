"""One stream over many processes: what they tell each other, so that they adapt as one.

Every process of a `torch.distributed` group runs the same method on the same global batch. What is
heavy is shared: each process runs the model on its rows alone, forward and backward. What is light
is not: logits are put together in the order of the ranks, and whatever follows (losses, filters,
votes, memories, verdicts, draws) every process computes for the whole batch, as one process would.
Batch norm is the one place within a model where images meet; its statistics are put together, too.

Gradients: the rows that came from others are constants here, and those of our own count `size`
times; the mean over the processes is then right for what is shared and for what is not.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, Literal

import torch
from torch import Tensor, distributed

from tapr.errors import InputError, SyncError

Sync = Literal["auto", False]


@dataclass(frozen=True)
class Group:
    """The processes that adapt together."""

    rank: int
    size: int

    def gather(self, tensor: Tensor) -> Tensor:
        """The tensors of all processes, which have one shape, in the order of the ranks: [N, ...].

        >>> Group(0, 1).even(5)
        (5,)
        """
        own = tensor.detach().contiguous()
        parts = own.new_empty(self.size, *own.shape)
        _together(distributed.all_gather, list(parts.unbind()), own)
        return parts

    def rows(self, tensor: Tensor, counts: Sequence[int]) -> Tensor:
        """Rows of all processes behind one another, where process r has `counts[r]` of them."""
        most = max(counts)
        padded = tensor.new_zeros(most, *tensor.shape[1:])
        padded[: len(tensor)] = tensor
        parts = self.gather(padded)
        return torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)])

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum over the processes."""
        total = tensor.detach().clone(memory_format=torch.contiguous_format)
        _together(distributed.all_reduce, total)
        return total

    def mean_(self, tensors: Sequence[Tensor]) -> None:
        """Make tensors their mean over the processes, by one message for each type."""
        for dtype in {tensor.dtype for tensor in tensors}:
            alike = [tensor for tensor in tensors if tensor.dtype == dtype]
            flat = torch.cat([tensor.flatten() for tensor in alike])
            _together(distributed.all_reduce, flat)
            flat /= self.size
            parts = torch.split(flat, [tensor.numel() for tensor in alike])
            for tensor, part in zip(alike, parts, strict=True):
                tensor.copy_(part.view_as(tensor))

    def all(self, flag: bool, device: torch.device) -> bool:
        """Does every process say so?"""
        return bool(self.gather(torch.tensor([flag], dtype=torch.uint8, device=device)).all())

    def first(self, data: bytes | None, device: torch.device) -> bytes:
        """What the first process has, on all of them."""
        size = torch.tensor([len(data or b"")], device=device)
        _together(distributed.broadcast, size, 0)
        known = data if self.rank == 0 and data is not None else bytes(int(size))
        sent = torch.frombuffer(bytearray(known), dtype=torch.uint8).to(device)
        _together(distributed.broadcast, sent, 0)
        return sent.cpu().numpy().tobytes()

    def even(self, count: int) -> tuple[int, ...]:
        """So many rows, spread evenly: how many each process has."""
        ends = [count * rank // self.size for rank in range(self.size + 1)]
        return tuple(end - start for start, end in pairwise(ends))


def group() -> Group | None:
    """The default group, if there is one of several processes."""
    if not (distributed.is_available() and distributed.is_initialized()):
        return None
    size = distributed.get_world_size()
    return Group(distributed.get_rank(), size) if size > 1 else None


def _together(collective: Callable[..., Any], *given: Any) -> None:
    """Do what needs every process; a sentence if one of them does not come."""
    try:
        collective(*given)
    except RuntimeError as error:
        why = str(error).strip().partition("\n")[0]
        raise SyncError(
            f"expected all {distributed.get_world_size()} processes to take part, but one has ended"
            f" or hangs ({why}); the adapter is as it was before the batch: save it, and start all"
            " processes again"
        ) from error


@dataclass(frozen=True)
class Share:
    """Which rows of a forward each process runs: `counts` images each, in every one of its views.

    The rows are views behind one another, [V * B]. They are here in whole, or only `own` ones are.
    """

    group: Group
    counts: tuple[int, ...]
    views: int = 1
    only_own: bool = False

    @property
    def images(self) -> int:
        """The images of all processes together."""
        return sum(self.counts)

    @property
    def count(self) -> int:
        """The images of this process."""
        return self.counts[self.group.rank]

    @property
    def here(self) -> slice:
        """Where those of this process stand among them."""
        ends = [0, *accumulate(self.counts)]
        return slice(ends[self.group.rank], ends[self.group.rank + 1])

    @property
    def first(self) -> int:
        """Which of the images is the first one that is here."""
        return self.here.start if self.only_own else 0

    def total(self, counts: Tensor) -> Tensor:
        """The sum of numbers over the processes, if each has counted only what is its own."""
        return self.group.gather(counts).sum(0) if self.only_own else counts

    def own(self, rows: Tensor) -> Tensor:
        """The rows to run here. Nobody runs none: a black image in each view stands in for them."""
        if not self.count:
            return rows.new_zeros(self.views, *rows.shape[1:])
        if self.only_own:
            return rows
        return torch.unflatten(rows, 0, (self.views, -1))[:, self.here].flatten(0, 1)

    def whole(self, rows: Tensor) -> Tensor:
        """The rows of all processes in the order of one; the gradient flows to our own."""
        whole: Tensor = _Whole.apply(rows, self)  # type: ignore[no-untyped-call]
        return whole

    def collect(self, rows: Tensor) -> Tensor:
        """The same without a gradient."""
        by_image = torch.unflatten(rows, 0, (self.views, -1)).transpose(0, 1)  # [b, V, ...]
        return self.group.rows(by_image[: self.count], self.counts).transpose(0, 1).flatten(0, 1)

    def among(self, first: int) -> tuple[int, ...]:
        """How many of the first so many images each process runs."""
        ends = [0, *accumulate(self.counts)]
        return tuple(max(0, min(end, first) - start) for start, end in pairwise(ends))

    def moments(
        self, mean: Tensor, variance: Tensor, counts: Sequence[int]
    ) -> tuple[Tensor, Tensor]:
        """Mean and (biased) variance over all processes, each of which counts by its images.

        It is the law of total variance; the gradient flows to all of them.
        """
        exact = torch.promote_types(mean.dtype, torch.float32)
        own = torch.stack([mean.to(exact), variance.to(exact)])
        parts: Tensor = _Exchange.apply(own, self.group)  # type: ignore[no-untyped-call]
        parts = parts[[rank for rank, count in enumerate(counts) if count]]
        weights = own.new_tensor([count / sum(counts) for count in counts if count])
        weights = weights.view(-1, *[1] * mean.ndim)
        total = (weights * parts[:, 0]).sum(0)
        spread = (weights * (parts[:, 1] + (parts[:, 0] - total).square())).sum(0)
        return total.to(mean.dtype), spread.to(variance.dtype)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Around the forward."""
        token = _SHARE.set(self)
        try:
            yield
        finally:
            _SHARE.reset(token)


_SHARE: ContextVar[Share | None] = ContextVar("share", default=None)


class _Whole(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, share: Share) -> Tensor:
        ctx.share, ctx.rows = share, len(rows)
        return share.collect(rows)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, None]:
        share: Share = ctx.share
        own = torch.unflatten(slope, 0, (share.views, -1))[:, share.here].flatten(0, 1)
        missing = ctx.rows - len(own)  # the images that stand in for none
        padding = own.new_zeros(missing, *own.shape[1:])
        return torch.cat([own * share.group.size, padding]), None


class _Exchange(torch.autograd.Function):
    """Tensors of all processes, [N, ...], each used by all of them."""

    @staticmethod
    def forward(ctx: Any, own: Tensor, group: Group) -> Tensor:
        ctx.group = group
        return group.gather(own)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, None]:
        return ctx.group.sum(slope)[ctx.group.rank], None


def share() -> Share | None:
    """How the forward under way is shared; None if it is not."""
    return _SHARE.get()


def whole(rows: Tensor) -> Tensor:
    """Rows within a forward, such as features, put together if it is shared."""
    now = _SHARE.get()
    return rows if now is None else now.whole(rows)


def rows(x: Tensor) -> int:
    """How many rows a layer's input has, over all processes if the forward is shared."""
    now = _SHARE.get()
    if now is None:
        return len(x)
    each = max(now.count, 1)  # a layer may have several rows for an image
    return len(x) // each * now.images


def beginning(x: Tensor, images: int) -> Tensor:
    """The first images in a layer's input, as far as they are here; one at the least."""
    now = _SHARE.get()
    return x[: images if now is None else max(now.among(images)[now.group.rank], 1)]


def moments(mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and (biased) variance of a layer's input; over all processes, if they share it."""
    now = _SHARE.get()
    return (mean, variance) if now is None else now.moments(mean, variance, now.counts)


@dataclass(frozen=True)
class Batch:
    """A batch that is spread over processes: how many images each of them has.

    Methods get the images of all of them, or, if `only_own`, those of this process alone.
    """

    group: Group
    counts: tuple[int, ...]
    only_own: bool

    @property
    def images(self) -> int:
        """The images of all processes together."""
        return sum(self.counts)

    @property
    def here(self) -> slice:
        """Where those of this process stand among them."""
        return Share(self.group, self.counts).here

    def share(self, rows: int, views: int = 1) -> Share:
        """How a forward of these rows is shared: as the images are, or else evenly."""
        if self.only_own:
            return Share(self.group, self.counts, views, only_own=True)
        return Share(self.group, self.group.even(rows // views), views)

    def some(self, images: Tensor, places: Tensor) -> tuple[Tensor, Share]:
        """The images at places of the whole batch, as far as they are here, and their share."""
        if not self.only_own:
            return images[places], Share(self.group, self.group.even(len(places)))
        ends = torch.tensor([0, *accumulate(self.counts)], device=places.device)
        owners = torch.searchsorted(ends, places, right=True) - 1
        counts = torch.bincount(owners, minlength=self.group.size).tolist()
        mine = places[owners == self.group.rank] - self.here.start
        return images[mine], Share(self.group, tuple(counts), only_own=True)


def exchanged(
    group: Group, images: Tensor | InputError, marks: int, device: torch.device
) -> tuple[tuple[int, ...], bool]:
    """Tell the others what came; how many images each has, and whether the marks are the same.

    An error here is an error everywhere: nobody adapts on a batch of which a part is missing.
    """
    failed = isinstance(images, InputError)
    shape = [0, 0, 0, 0] if isinstance(images, InputError) else list(images.shape)
    told = group.gather(torch.tensor([failed, marks, *shape], device=device)).tolist()
    if isinstance(images, InputError):
        raise images
    for rank, (wrong, *_) in enumerate(told):
        if wrong:
            raise InputError(
                f"expected images that all processes can take, but process {rank} refused its own;"
                " the batch is left out by all"
            )
    sizes = {tuple(size) for _, _, count, *size in told if count}
    if len(sizes) > 1:
        raise InputError(f"expected images of one size on all processes, got {sorted(sizes)}")
    return tuple(count for _, _, count, *_ in told), len({mark for _, mark, *_ in told}) == 1
