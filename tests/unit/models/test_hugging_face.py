"""An adapter of a model of Hugging Face is a drop-in for it; `hf:` finds models without network."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch import Tensor

import tapr
from tapr.errors import InputError, ModelError
from tapr.models import contract
from tapr.runs import preprocess

transformers: Any = pytest.importorskip("transformers", reason="the extra [hf] is not installed")
MEAN, STD = [0.4, 0.5, 0.6], [0.2, 0.2, 0.3]


def tiny(kind: str) -> Any:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        if kind == "resnet":
            shape = {"embedding_size": 4, "hidden_sizes": [4, 8], "depths": [1, 1]}
            config = transformers.ResNetConfig(**shape, layer_type="basic", num_labels=3)
            return transformers.ResNetForImageClassification(config).eval()
        shape = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
        sizes = {"intermediate_size": 8, "image_size": 32, "patch_size": 16}
        config = transformers.ViTConfig(**shape, **sizes, num_labels=3)
        return transformers.ViTForImageClassification(config).eval()


@pytest.fixture
def pictures() -> Tensor:
    return torch.rand(6, 3, 32, 32, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    model = tiny("resnet")
    model.config.id2label = dict(enumerate(["ant", "bee", "cat"]))
    model.save_pretrained(tmp_path / "model")
    table = {"image_mean": MEAN, "image_std": STD, "size": {"height": 32, "width": 32}}
    more = {"do_resize": True, "resample": 2, "image_processor_type": "ViTImageProcessor"}
    (tmp_path / "model" / contract.PROCESSOR).write_text(json.dumps({**table, **more}))
    return tmp_path / "model"


@pytest.mark.parametrize("kind", ["resnet", "vit"])
@pytest.mark.parametrize("method", ["source", "steady", "tent"])
def test_outputs_stay_outputs(kind: str, method: str, pictures: Tensor) -> None:
    model = tiny(kind)
    expected = tapr.adapt(model, method).predict(pictures).logits
    with torch.no_grad():
        own = model(pixel_values=pictures)
    for call in ({"pixel_values": pictures}, {"images": pictures}):
        output = tapr.adapt(model, method)(**call)
        assert type(output) is type(own)
        assert torch.equal(output.logits, expected)
        assert (output.loss, output["logits"] is output.logits) == (None, True)
    labels = torch.tensor([0, 1, 2, 0, 1, 2])
    output = tapr.adapt(model, method)(pixel_values=pictures, labels=labels)
    assert torch.equal(output.logits, expected)  # which adaptation does not see
    assert output.loss == torch.nn.functional.cross_entropy(expected, labels)


def test_calls_that_cannot_be_right(pictures: Tensor, model: torch.nn.Module) -> None:
    with pytest.raises(InputError, match="expected images, or pixel_values, got both or neither"):
        tapr.adapt(tiny("vit"), "source")()
    with pytest.raises(InputError, match="expected labels for a model of Hugging Face only"):
        tapr.adapt(model, "source")(pictures[:, :, :10, :9], labels=torch.zeros(6).long())


def test_a_folder_by_name(folder: Path, pictures: Tensor) -> None:
    model = tapr.models.load(f"hf:{folder}", classes=3)
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (MEAN, STD))
    with torch.no_grad():
        expected = tiny("resnet")((pictures - mean) / std).logits
        assert torch.allclose(model(pictures).logits, expected, atol=1e-5)
    prepared = preprocess.prepared(f"hf:{folder}")
    assert prepared.config["label_names"] == ["ant", "bee", "cat"]
    assert (prepared.fit.size, prepared.fit.mode) == ((3, 32, 32), "squash")
    with pytest.raises(ModelError, match=r"expected 5 classes, hf:.* has 3"):
        tapr.models.load(f"hf:{folder}", classes=5)


def test_a_model_that_is_not_here_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(
        ModelError, match=r"no image classifier hf:nobody/nothing, .* downloads none"
    ):
        tapr.models.load("hf:nobody/nothing")
    (tmp_path / "config.json").write_text(
        '{"model_type": "own", "auto_map": {"AutoConfig": "x.Y"}}'
    )
    (tmp_path / "x.py").write_text("raise SystemExit('code of a file has run')")
    with pytest.raises(ModelError, match="found no image classifier"):
        tapr.models.load(f"hf:{tmp_path}")


def test_in_a_pipeline(folder: Path) -> None:
    model = transformers.ResNetForImageClassification.from_pretrained(folder).eval()
    processor = transformers.ViTImageProcessorPil.from_pretrained(folder)
    adapter = tapr.adapt(model, "source", preprocessing=processor, images="normalized")
    picture = Image.effect_noise((40, 50), 90).convert("RGB")
    answers = [
        transformers.pipeline("image-classification", model=each, image_processor=processor)(
            picture
        )
        for each in (model, adapter)
    ]
    for theirs, ours in zip(*answers, strict=True):
        assert ours["label"] == theirs["label"]
        assert ours["score"] == pytest.approx(theirs["score"], abs=1e-5)


def test_in_a_trainer(tmp_path: Path, pictures: Tensor) -> None:
    pytest.importorskip("accelerate", reason="which the Trainer needs")
    rows = [{"pixel_values": picture, "labels": 0} for picture in pictures]
    options = {"per_device_eval_batch_size": 3, "report_to": [], "use_cpu": True}
    arguments = transformers.TrainingArguments(output_dir=str(tmp_path), **options)
    model = tiny("resnet")
    found = transformers.Trainer(tapr.adapt(model, "tent"), arguments).predict(rows)
    adapter = tapr.adapt(model, "tent")
    expected = [adapter.predict(part).logits for part in (pictures[:3], pictures[3:])]
    assert torch.equal(torch.from_numpy(found.predictions), torch.cat(expected))
