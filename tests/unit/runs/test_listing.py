"""Images by path: a folder, a file with a list, standard input."""

import io
from pathlib import Path

import pytest

import tapr
from tapr.runs.labels import Truth, class_names
from tapr.runs.listing import find


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("b/2.JPG", "b/1.png", "a.webp", "b/c/3.png", ".hidden.png", "b/notes.txt"):
        Path("photos", name).parent.mkdir(parents=True, exist_ok=True)
        Path("photos", name).touch()
    Path("photos/loop").symlink_to("..")


def test_a_folder_is_walked_in_the_order_of_its_paths() -> None:
    listing = find("photos")
    assert listing == (["a.webp", "b/1.png", "b/2.JPG", "b/c/3.png"], Path("photos"), 4)


def test_a_list_and_stdin(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "photos/a.webp\r\n\n photos/b/1.png\n"
    Path("list.txt").write_text(text)
    expected = ["photos/a.webp", " photos/b/1.png"]
    assert find("list.txt") == (expected, Path(), 2)
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    listing = find("-")
    assert listing.total is None
    assert list(listing.names) == expected


def test_shuffled_by_the_seed() -> None:
    mixed = [find("photos", shuffle=True, seed=seed).names for seed in range(9)]
    assert all(sorted(names) == find("photos").names for names in mixed)
    assert mixed[3] == find("photos", shuffle=True, seed=3).names
    assert any(names != mixed[0] for names in mixed)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("nowhere", "cannot read nowhere: No such file"),
        ("photos/a.webp", "expected a folder, a text file that lists images, or -, got photos/a"),
        ("empty.txt", r"one path per line, but empty\.txt is not one"),
        ("empty", r"expected images \(\.bmp, .* below empty, found none"),
    ],
)
def test_what_is_no_list_gets_a_sentence(source: str, message: str) -> None:
    Path("empty.txt").touch()
    Path("empty").mkdir()
    with pytest.raises(tapr.TaprError, match=message):
        find(source)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("names.txt", "ant\nbee\n\n"),
        ("names.json", '["ant", "bee"]'),
        ("names.json", '{"1": "bee", "0": "ant"}'),
    ],
)
def test_class_names_from_a_file(name: str, text: str) -> None:
    Path(name).write_text(text)
    assert class_names(Path(name), {"label_names": ["x"]}) == ("ant", "bee")


def test_class_names_from_what_is_known_about_the_model() -> None:
    assert class_names(None, {"label_names": ["ant", "bee"]}) == ("ant", "bee")
    assert class_names(None, {"dataset": "cifar10"})[:2] == ("airplane", "automobile")
    assert class_names(None, {}) == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "cannot read class names from names.json: "),
        ('{"0": "ant", "2": "bee"}', "expected a name for every class, none for '1'"),
        ("3", "expected a list or an object, got int"),
    ],
)
def test_bad_class_names_get_a_sentence(text: str, message: str) -> None:
    Path("names.json").write_text(text)
    with pytest.raises(tapr.TaprError, match=message):
        class_names(Path("names.json"), {})


def test_what_an_image_shows() -> None:
    by_folder = Truth(["ant", "bee"])
    assert [by_folder(name) for name in ("bee/1.png", "x/ant/2.png", "ant/x/3.png", "4.png")] == [
        1,
        0,
        None,
        None,
    ]
    Path("truth.csv").write_text('path,label\n"a,b.png",bee\nc.png,0\n')
    listed = Truth(["ant", "bee"], Path("truth.csv"))
    assert [listed(name) for name in ("a,b.png", "c.png", "bee/1.png")] == [1, 0, None]
    Path("truth.csv").write_text("c.png,wasp\n")
    with pytest.raises(tapr.TaprError, match=r"expected rows of path,label .*got \['c.png', 'wasp"):
        Truth(["ant", "bee"], Path("truth.csv"))
