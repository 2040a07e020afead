"""What the programs share: numbers and initial weights that are the same in every framework, because NumPy makes them."""
import numpy as np
import torch


def numbers(*shape, seed=0):
    """Normal random numbers."""
    return torch.tensor(np.random.RandomState(seed).standard_normal(shape), dtype=torch.get_default_dtype())


def integers(high, *shape, seed=0):
    """Random integers below high."""
    return torch.tensor(np.random.RandomState(seed).randint(0, high, shape), dtype=torch.long)


def seeded(module, seed=0):
    """The module with initial weights that are a function of the shapes and the order of its parameters."""
    random = np.random.RandomState(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            shape = tuple(parameter.shape)
            fan_in = int(np.prod(shape[1:])) if len(shape) > 1 else 1
            values = random.uniform(-1, 1, shape) / np.sqrt(fan_in) if len(shape) > 1 else 0.1 * random.uniform(-1, 1, shape) + (parameter.numel() > 0) * float(parameter.mean() > 0.5)
            parameter.copy_(torch.tensor(values, dtype=parameter.dtype))
    return module
