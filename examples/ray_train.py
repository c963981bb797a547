"""One stream over many processes that Ray Train starts: they adapt together, as under torchrun.

Run it with `python examples/ray_train.py`, which starts a Ray on this machine; `ray.init(address)`
reaches a cluster. It needs `pip install 'ray[train]'`.
"""

import tempfile

import ray
import torch
from ray import train
from ray.train.torch import TorchTrainer
from torch import distributed

import tapr


def work(config: dict[str, int]) -> dict[str, int]:
    """What each process does. Ray has begun the group (gloo; nccl with `use_gpu=True`)."""
    torch.set_num_threads(1)
    rank, size = distributed.get_rank(), distributed.get_world_size()
    digits = tapr.datasets.load("digits")
    assert digits.labels is not None
    stream = torch.from_numpy(digits.images[: config["images"]]).permute(0, 3, 1, 2).float() / 255
    labels = torch.from_numpy(digits.labels[: config["images"]])

    adapter = tapr.adapt(tapr.models.load("digits-small"), "tent")  # the same in every process
    right = torch.tensor([0])
    for images, truth in zip(stream.chunk(8), labels.chunk(8), strict=True):
        own = slice(rank, None, size)  # each process has its own images, of whatever number
        right += int((adapter(images[own]).argmax(1) == truth[own]).sum())
    distributed.all_reduce(right)
    return {"right": int(right), "processes": size}


ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
with tempfile.TemporaryDirectory() as folder:
    trainer = TorchTrainer(
        work,
        train_loop_config={"images": 512},
        scaling_config=train.ScalingConfig(num_workers=2),
        run_config=train.RunConfig(name="stream", storage_path=folder),
    )
    found = trainer.fit().return_value  # of rank 0
ray.shutdown()
assert found is not None
print(f"{found['processes']} processes, {found['right']} of 512 right")
