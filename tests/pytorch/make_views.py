#!/usr/bin/env python3
"""Write tests/fixtures/encoder-layer/views.pt: the layer's state dict in every form that PyTorch
allows a tensor to have: slices of one storage, transposed and strided views, parameters, in an
OrderedDict with attributes.

    python3 tests/pytorch/make_views.py
"""

import pathlib
from collections import OrderedDict

import torch

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "fixtures" / "encoder-layer"


def main():
    whole = torch.load(FOLDER / "weights.pt", weights_only=True)
    views = OrderedDict()
    views._metadata = OrderedDict({"": {"version": 1}})
    storage = torch.cat([tensor.flatten() for tensor in whole.values()])
    offset = 0
    for at, (name, tensor) in enumerate(whole.items()):
        view = storage[offset : offset + tensor.numel()].view(tensor.shape)
        offset += tensor.numel()
        if at % 4 == 1:
            view = torch.nn.Parameter(view)
        elif at % 4 == 2 and tensor.dim() == 2:
            view = tensor.t().contiguous().t()
        elif at % 4 == 3:
            view = torch.stack([torch.zeros_like(tensor), tensor], -1)[..., 1]
        assert torch.equal(view, tensor)
        views[name] = view
    torch.save(views, FOLDER / "views.pt")


if __name__ == "__main__":
    main()
