"""A comparison in plain words."""

from tapr.reports import names
from tapr.reports.paired import Comparison, Pairing


def verdict(found: Comparison, first: str, second: str) -> list[str]:
    """The lines that `tapr compare` prints."""
    all_ = found.overall
    lines = [
        f"A: {first}: {100 * all_.first:.2f} % right",
        f"B: {second}: {100 * all_.second:.2f} % right",
        "",
        _sentence(all_),
        f"B fixes {all_.fixed:,} of A's mistakes and breaks {all_.broken:,} of what A had right,"
        f" of {all_.images:,} predictions; McNemar's exact test: p {_p(all_.p)}.",
    ]
    if found.repeated:
        lines.append(
            "The same pictures occur under several corruptions or seeds: the interval accounts for"
            " that, the test over all of them does not."
        )
    if found.policies[0] != found.policies[1]:
        lines.append(
            f"A predicts with other batch-norm statistics ({found.policies[0]}) than B"
            f" ({found.policies[1]}): part of the difference is theirs."
        )
    if len(found.domains) > 1:
        lines += ["", *_table(found)]
    if found.differing:
        lines += ["", "A / B differ in " + "; ".join(found.differing)]
    return lines


def _sentence(pairing: Pairing) -> str:
    points, low, high = (100 * v for v in (pairing.difference, *pairing.interval))
    between = f"{points:+.2f} points, 95 % interval {low:+.2f} to {high:+.2f}"
    if low > 0:
        return f"B is better than A: {between}."
    if high < 0:
        return f"B is worse than A: {between}."
    return f"These images do not tell A and B apart: {between}."


def _table(found: Comparison) -> list[str]:
    width = max(len(names.long(domain)) for domain in found.domains)
    head = f"{'':{width}}      A      B   B - A   95 % interval  fixed broken        p"
    lines = [head]
    for domain, p in found.domains.items():
        low, high = (100 * end for end in p.interval)
        lines.append(
            f"{names.long(domain):{width}} {100 * p.first:6.2f} {100 * p.second:6.2f}"
            f" {100 * p.difference:+7.2f} {low:+7.2f} {high:+7.2f} {p.fixed:6d} {p.broken:6d}"
            f" {_p(p.p).removeprefix('= '):>8}"
        )
    return lines


def _p(value: float) -> str:
    """A p-value, as small as one can believe it.

    >>> _p(0.5), _p(0.0004), _p(1e-20)
    ('= 0.50', '= 0.0004', '< 1e-6')
    """
    if value < 1e-6:
        return "< 1e-6"
    return f"= {value:.2f}" if value >= 0.01 else f"= {value:.1g}"
