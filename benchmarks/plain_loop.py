"""Test-time adaptation as people write it: PIL image by image, eager, nothing tuned."""

import random
from collections.abc import Callable
from copy import deepcopy

import torch
from benchmarks.views import pil_augmix
from torch import Tensor, nn

Side = Callable[[Tensor], Tensor]


def pest(model: nn.Module, steps: int) -> Side:
    model = deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9, weight_decay=5e-4)
    rng = random.Random(0)

    def adapt(images: Tensor) -> Tensor:
        views = torch.cat([images, pil_augmix(images, rng), pil_augmix(images, rng)])
        model.train()
        for _ in range(steps):
            p, p1, p2 = model(views).softmax(1).chunk(3)
            mean = (p + p1 + p2) / 3
            loss = -(p * torch.log(p)).sum(1)
            for q in (p, p1, p2):
                loss = loss + (q * (torch.log(q) - torch.log(mean))).sum(1) / 3
            optimizer.zero_grad()
            torch.autograd.backward(loss.mean())
            optimizer.step()
        model.eval()
        with torch.no_grad():
            return torch.as_tensor(model(images))

    return adapt


def tent(model: nn.Module, steps: int) -> Side:
    model = deepcopy(model).requires_grad_(False)
    affine = []
    for layer in model.modules():
        if isinstance(layer, nn.BatchNorm2d):
            affine += list(layer.requires_grad_(True).parameters())
    optimizer = torch.optim.Adam(affine, lr=1e-3)

    def adapt(images: Tensor) -> Tensor:
        model.train()
        logits = model(images)
        loss = -(logits.softmax(1) * logits.log_softmax(1)).sum(1).mean()
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
        return torch.as_tensor(logits.detach())

    return adapt


def norm(model: nn.Module, steps: int) -> Side:
    model = deepcopy(model)

    def adapt(images: Tensor) -> Tensor:
        model.train()
        with torch.no_grad():
            return torch.as_tensor(model(images))

    return adapt


METHODS = {"pest": pest, "tent": tent, "norm": norm}
