"""Meta-learning of sine waves: inner steps with gradients of gradients of a dict of weights, functional_call, then the same by torch.func with vmap."""
from collections import OrderedDict

import torch
import torch.nn as nn
import torch.nn.functional as F
from support import numbers, seeded
from torch.func import functional_call, grad, vmap

DTYPE = "float64"


def task(seed, phase):
    x = numbers(10, 1, seed=seed)
    return x, torch.sin(x + phase)


def adapted(net, x, y, steps=2, lr=0.1):
    fast = OrderedDict(net.named_parameters())
    for _ in range(steps):
        loss = F.mse_loss(functional_call(net, fast, (x,)), y)
        grads = torch.autograd.grad(loss, fast.values(), create_graph=True)
        fast = OrderedDict((name, p - lr * g) for (name, p), g in zip(fast.items(), grads))
    return fast


def main():
    net = seeded(nn.Sequential(OrderedDict([("l1", nn.Linear(1, 16)), ("tanh", nn.Tanh()), ("l2", nn.Linear(16, 1))])))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lr_lambda=lambda epoch: 0.95**epoch)
    for iteration in range(5):
        losses = []
        for phase in range(3):
            x, y = task(3 * iteration + phase, phase)
            losses.append(F.mse_loss(functional_call(net, adapted(net, x, y), x), y))
        optimizer.zero_grad()
        meta = torch.stack(losses).mean()
        meta.backward()
        optimizer.step()
        scheduler.step()
        yield meta.item()
    params = {name: p.detach() for name, p in net.named_parameters()}

    def loss_of(weights, x, y):
        return F.mse_loss(functional_call(net, weights, (x,)), y)

    def after_a_step(x, y):
        g = grad(loss_of)(params, x, y)
        return loss_of({name: params[name] - 0.1 * g[name] for name in g}, x, y)

    xs, ys = (torch.stack(part) for part in zip(*(task(50 + i, i) for i in range(3))))
    yield vmap(after_a_step)(xs, ys).sum().item()
    each = vmap(grad(loss_of), in_dims=(None, 0, 0))(params, xs[0], ys[0])
    yield each["l1.weight"].flatten(1).norm(dim=1).sum().item()
