"""Whose statistics batch normalisation uses, and which images feed them.

Two kinds of forward exist. In an *adapting* forward all views of a batch stand behind one another;
in a *predicting* forward only those images whose logits are the answer. A policy says whose
statistics each of them meets:

| statistics   | adapting forward            | predicting forward                                 |
|--------------|-----------------------------|----------------------------------------------------|
| `source`     | the stored ones             | the stored ones, never moved                       |
| `batch`      | the forward's own           | the forward's own                                  |
| `running`    | own; moves the stored ones by `momentum` | the stored ones                       |
| `cumulative` | own; the stored ones are the mean over all such forwards | the stored ones       |
| `apart`      | the forward's own           | the stored ones, never moved                       |
| `blend`      | the forward's own           | (prior x stored + n x own) / (prior + n), n images |
| `share`      | `share` of the stored ones, the rest own | the same                              |
| `window`     | `share` of the stored ones, the rest the stream's* | the same                    |
| `views`      | each view's own             | the same                                           |
| `prior`      | (prior x stored + own) / (prior + 1) | the same                                  |
| `robust`     | the stored ones, moved by `momentum` just before | the stored ones               |
| `instance`   | own; moves the stored ones by `momentum`; corrected | the stored ones; corrected |
| `instance-batch` | own; corrected          | own; corrected                                     |

The stream's statistics are a mean over its last `window` images, the present ones included: they
are counted in images, not in forwards, so that the batch size does not change what is remembered.
At the start of a stream the stored statistics count as `prior` images, and then for `share`, or
less where the stream lies far from them (`moments.anchored`). A list of shares, one for each view,
gives every view statistics of its own; one number, or any other policy but `views`, takes them over
all views together. A view with share 1 meets the stored ones: it is the source model itself, and
keeps the scales of the layers too when others learn. (*) An adapting forward of other views than
those leaves their statistics alone: it meets its n images' own, with a share of prior / (prior + n)
of the stored ones.

How far the stream lies from what the source model knows is measured on its view (`Policy.shift`),
and when the stream leaps away from what it showed before, that is forgotten (`Policy.forgets`).
"Corrected" is for each image by its own statistics, as far as they lie outside what chance makes of
the others (IABN, of NOTE): `deviations` standard deviations.

`feed` says which images move the statistics of `running` and `cumulative`: all `views`, in the
adapting forward itself, or the `untouched` ones, in a further forward without the others: what a
layer sees depends on whose statistics the layers before it used. Layers that keep no running
statistics always use the images' own.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

from torch import nn

from tapr.errors import InputError
from tapr.models import policies, windows
from tapr.registry import Registry

Feed = Literal["views", "untouched"]
FEEDS = Registry("feed", {feed: feed for feed in get_args(Feed)})


class Statistics(NamedTuple):
    """The options of a policy: see the module's table."""

    use: str = "batch"
    feed: Feed = "views"
    momentum: float = 0.1
    prior: float = 16.0
    share: float | Sequence[float] = 0.5
    window: float = 500.0
    deviations: float = 4.0

    @property
    def shares(self) -> tuple[float, ...]:
        """The share of the stored statistics, for all views or one for each."""
        return (self.share,) if isinstance(self.share, int | float) else tuple(self.share)

    def policy(self, model: nn.Module) -> policies.Policy:
        """The policy for the batch-norm layers of a model."""
        self.check()
        return POLICIES[self.use](model, self)

    def check(self) -> None:
        """Refuse names nobody knows and numbers outside their range."""
        POLICIES.check(self.use)
        FEEDS.check(self.feed)
        if not isinstance(self.momentum, int | float) or not 0 < self.momentum <= 1:
            raise InputError(f"expected a statistics momentum in (0, 1], got {self.momentum!r}")
        if not isinstance(self.prior, int | float) or not 0 <= self.prior < float("inf"):
            raise InputError(f"expected a prior strength of 0 or more, got {self.prior!r}")
        if not isinstance(self.window, int | float) or not 1 <= self.window < float("inf"):
            raise InputError(f"expected a window of 1 image or more, got {self.window!r}")
        if not isinstance(self.deviations, int | float) or not self.deviations >= 0:
            raise InputError(f"expected deviations of 0 or more, got {self.deviations!r}")
        listed = isinstance(self.share, Sequence) and not isinstance(self.share, str)
        good = listed or isinstance(self.share, int | float)
        shares = self.shares if good else ()
        if not shares or not all(isinstance(v, int | float) and 0 <= v <= 1 for v in shares):
            raise InputError(
                f"expected a share from 0 to 1, or a list of one for each view, got {self.share!r}"
            )


POLICIES: Registry[type[policies.Policy]] = Registry(
    "statistics",
    {
        "source": policies.Source,
        "batch": policies.Batch,
        "running": policies.Running,
        "cumulative": policies.Cumulative,
        "apart": policies.Apart,
        "blend": policies.Blend,
        "share": windows.Share,
        "window": windows.Window,
        "views": windows.Views,
        "prior": policies.Prior,
        "robust": policies.Robust,
        "instance": policies.Instance,
        "instance-batch": policies.InstanceBatch,
    },
)
