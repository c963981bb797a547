"""Specs: variants wherever methods are named, options changed in them, one list of fields."""

from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import Field

import tapr
from tapr.runs import spec as specs
from tapr.runs import sweep, variants
from tapr.runs.spec import Spec

VALUES = {"name": "tiny", "data": "digits", "corruptions": [], "model": "digits-small"}
RANDAUGMENT = "pest:augmentation=randaugment"


def methods(given: Any) -> dict[str, dict[str, Any]]:
    return specs.make({**VALUES, "methods": given}).methods


@pytest.mark.parametrize(
    ("text", "method", "options"),
    [
        ("tent", "tent", {}),
        ("pest:lr=0:augmentation=identity", "pest", {"lr": 0, "augmentation": "identity"}),
        ("mine.code:Class", "mine.code:Class", {}),
        ("mine:Class:margin=0.3:on=true", "mine:Class", {"margin": 0.3, "on": True}),
        ("pest : lr = 1e-3", "pest", {"lr": 1e-3}),
        (
            'pest:augmentation_options={"n": 1, "ops": ["a:b", "c"]}:steps=2',
            "pest",
            {"augmentation_options": {"n": 1, "ops": ["a:b", "c"]}, "steps": 2},
        ),
    ],
)
def test_a_variant_is_a_method_with_options(
    text: str, method: str, options: dict[str, Any]
) -> None:
    assert tapr.methods.parse(text) == (method, options)


@pytest.mark.parametrize("text", ["", ":", "lr=3", "pest:=3", "pest:lr="])
def test_what_is_no_variant_gets_a_sentence(text: str) -> None:
    with pytest.raises(tapr.TaprError, match=r"expected a method as NAME\[:key=value\]\.\.\., got"):
        tapr.methods.parse(text)


def test_methods_are_a_list_of_variants_or_tables_by_label() -> None:
    randaugment = {"method": "pest", "augmentation": "randaugment"}
    assert methods(["source", RANDAUGMENT]) == {
        "source": {"method": "source"},
        RANDAUGMENT: randaugment,
    }
    tables = {"tent": {"lr": 0.1}, "mine": {"method": "pest", "steps": 1}, "a": randaugment}
    assert methods(tables) == {**tables, "tent": {"method": "tent", "lr": 0.1}}
    mixed = {"a": {"method": f"{RANDAUGMENT}:lr=1", "lr": 2}}
    assert methods(mixed) == {"a": {**randaugment, "lr": 2}}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["tnet"], "methods in the spec: unknown method 'tnet'; did you mean 'tent'"),
        (["tent:lrr=1"], "unknown option 'lrr' of method 'tent'; did you mean 'lr'"),
        ({"mine": {"lr": 1}}, "unknown method 'mine'"),
        ([3], "expected methods as texts such as 'tent', got 3"),
        ({"a": 3}, "methods.a in the spec: expected a table, got 3"),
        ("tent", "methods in the spec: expected a table, got 'tent'"),
        (["tent:seed=1"], "expected no seed for the method 'tent:seed=1': the spec's `seeds`"),
        ({"a": {"method": "tent", "inplace": True}}, "expected no inplace for the method 'a'"),
        (["pest:layout=probe"], "layout 'probe' of the method 'pest:layout=probe' chooses by"),
    ],
)
def test_bad_methods_get_a_sentence(given: Any, message: str) -> None:
    with pytest.raises(tapr.TaprError, match=message):
        methods(given)


def test_a_flag_names_labels_of_the_spec_first_and_then_variants() -> None:
    wanted = ["pest-randaugment", "tent:lr=0.5", RANDAUGMENT]
    found = specs.load("digits", {"methods": wanted}).methods
    assert list(found) == wanted
    assert found["pest-randaugment"] == found[RANDAUGMENT]
    assert found["tent:lr=0.5"] == {"method": "tent", "lr": 0.5}


def test_a_label_of_the_spec_may_hide_a_method(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text('data="digits"\nmodel="m"\nmethods.tent={method="norm", prior=4}\n')
    found = specs.load(str(path), {"methods": ["tent", "norm"]}).methods
    assert found == {"tent": {"method": "norm", "prior": 4}, "norm": {"method": "norm"}}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("pest-augmx", "unknown method 'pest-augmx'; did you mean 'pest-augmix'"),
        ("tnet", "unknown method 'tnet'; did you mean 'tent'"),
        ("tnet:lr=3", "unknown method 'tnet'; did you mean 'tent'"),
    ],
)
def test_an_unknown_label_gets_the_nearest(name: str, message: str) -> None:
    with pytest.raises(tapr.TaprError, match=message):
        specs.load("digits", {"methods": [name]})


def test_options_change_one_method_or_all_that_know_them() -> None:
    changed = ["pest-augmix.lr=1e-3", "steps=2", "pest-randaugment.m=5", "momentum=none"]
    found = specs.replaced(specs.values("digits"), {}, changed)["methods"]
    assert found["pest-augmix"] == {"method": "pest", "lr": 1e-3, "steps": 2, "momentum": None}
    assert found["pest-randaugment"]["augmentation_options"] == {"m": 5}
    assert "steps" not in found["source"]
    assert (found["tent"]["steps"], found["pest-control"]["lr"]) == (2, 0)


def test_options_reach_labels_with_dots_and_equals_signs() -> None:
    wanted = {"methods": ["tent:lr=0.5", "tent"]}
    found = specs.load("digits", wanted, ["tent:lr=0.5.steps=3", "tent.preset=released"]).methods
    assert found["tent:lr=0.5"] == {"method": "tent", "lr": 0.5, "steps": 3}
    assert found["tent"] == {"method": "tent", "preset": "released"}


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("tent.lrr=1", "unknown option 'lrr' of method 'tent'; did you mean 'lr'"),
        ("stesp=1", "unknown option 'stesp' of these methods; did you mean 'steps'"),
        ("tet.lr=1", "unknown method 'tet'; did you mean 'tent'"),
        ("source.lr=1", "unknown option 'lr' of method 'source'"),
        ("lr", "expected --option NAME.key=value or key=value, got 'lr'"),
        ("tent.lr=", "expected --option NAME.key=value"),
        ("=1", "expected --option NAME.key=value"),
        ("tent.seed=1", "unknown option 'seed' of method 'tent'"),
        ("tent.lr=fast", "expected lr of at least 0 and below inf, got 'fast'"),
    ],
)
def test_bad_options_get_a_sentence(option: str, message: str) -> None:
    with pytest.raises(tapr.TaprError, match=message):
        specs.load("digits", {}, [option])


class More(Spec):
    """A spec with one more field."""

    frame: Annotated[int, Field(description="The side of the frame, in pixels.")] = 32


def test_a_new_field_is_one_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It is a flag, may be swept, identifies a run, and keeps numbers of a table apart."""
    from inspect import signature

    from tapr.cli import overrides
    from tapr.runs import bench

    for module in (specs, overrides, sweep, bench):
        monkeypatch.setattr(module, "Spec", More)
    asked = []

    @overrides.with_overrides
    def command(spec: str, *, replaced: overrides.Replaced) -> None:
        asked.append(replaced.values)

    assert "frame" in signature(command).parameters
    flag = signature(command).parameters["frame"].default
    assert (flag.param_decls, flag.help) == (
        ("--frame",),
        "The side of the frame, in pixels.  [default: from the spec, or 32]",
    )
    command(**dict.fromkeys(signature(command).parameters) | {"spec": "a", "frame": 16})
    assert asked == [{"frame": 16}]
    values = {**VALUES, "images": 4, "methods": ["source"]}
    made = sweep.expand(values, {"frame": [16, 24]})
    cells = [bench.Bench(spec, tmp_path).cells[0] for spec in made]
    assert [cell.identity["setting"]["frame"] for cell in cells] == [16, 24]
    assert cells[0].file != cells[1].file


def test_every_field_is_described_or_not_a_flag() -> None:
    for name, field in Spec.model_fields.items():
        assert bool(field.description) == (specs.role(name).flags != ()), name


def test_an_option_of_a_method_changes_all_its_variants() -> None:
    given = {"steady": {"method": "pest", "lr": 0.0}, "pest": {}, "tent": {}}
    made = variants.with_options(variants.tables(given), ["pest.steps=2"])
    assert {label: table.get("steps") for label, table in made.items()} == {
        "steady": None,  # the label `pest` is meant, which comes first
        "pest": 2,
        "tent": None,
    }
    made = variants.with_options(variants.tables({"a": {"method": "pest"}, **given}), ["a.steps=2"])
    assert made["a"]["steps"] == 2
    del given["pest"]
    made = variants.with_options(variants.tables(given), ["pest.steps=2"])
    assert made["steady"]["steps"] == 2


def test_a_folder_in_place_of_the_data_is_predicted_whole() -> None:
    found = specs.replaced(specs.values("cifar10c"), {"data": "folder:photos"})
    assert "images" not in found
    given = {"data": "folder:photos", "images": 5}
    assert specs.replaced(specs.values("cifar10c"), given)["images"] == 5
    assert specs.replaced(specs.values("cifar10c"), {"data": "cifar10"})["images"] == 2000
