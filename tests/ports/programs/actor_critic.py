"""Reinforcement learning with a toy environment: two heads, logarithms of chosen probabilities, returns, smooth_l1_loss, stacked losses."""
from collections import namedtuple

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from support import seeded

SavedAction = namedtuple("SavedAction", ["log_prob", "value"])


class Policy(nn.Module):
    def __init__(self):
        super(Policy, self).__init__()
        self.affine1 = nn.Linear(4, 32)
        self.action_head = nn.Linear(32, 2)
        self.value_head = nn.Linear(32, 1)
        self.saved_actions, self.rewards = [], []

    def forward(self, x):
        x = F.relu(self.affine1(x))
        return F.softmax(self.action_head(x), dim=-1), self.value_head(x)


class Pole:
    """A pole on a cart, by Euler's method."""

    def reset(self, seed):
        self.state = np.random.RandomState(seed).uniform(-0.05, 0.05, 4)
        return self.state.copy()

    def step(self, action):
        x, v, angle, spin = self.state
        force = 10.0 if action == 1 else -10.0
        push = (force + 0.05 * spin**2 * np.sin(angle)) / 1.1
        turn = (9.8 * np.sin(angle) - np.cos(angle) * push) / (0.5 * (4.0 / 3.0 - 0.1 * np.cos(angle) ** 2 / 1.1))
        self.state = np.array([x + 0.02 * v, v + 0.02 * (push - 0.05 * turn * np.cos(angle) / 1.1), angle + 0.02 * spin, spin + 0.02 * turn])
        return self.state.copy(), 1.0, bool(abs(self.state[2]) > 0.21)


def select_action(model, state, choice):
    probs, state_value = model(torch.from_numpy(state).to(torch.get_default_dtype()))
    log_prob = torch.log(probs)[choice]
    model.saved_actions.append(SavedAction(log_prob, state_value))
    return choice


def finish_episode(model, optimizer):
    policy_losses, value_losses, returns, total = [], [], [], 0
    for r in model.rewards[::-1]:
        total = r + 0.99 * total
        returns.insert(0, total)
    returns = torch.tensor(returns)
    returns = (returns - returns.mean()) / (returns.std() + np.finfo(np.float32).eps.item())
    for (log_prob, value), ret in zip(model.saved_actions, returns):
        policy_losses.append(-log_prob * (ret - value.item()))
        value_losses.append(F.smooth_l1_loss(value, torch.tensor([ret])))
    optimizer.zero_grad()
    loss = torch.stack(policy_losses).sum() + torch.stack(value_losses).sum()
    loss.backward()
    optimizer.step()
    del model.rewards[:]
    del model.saved_actions[:]
    return loss.item()


def main():
    model, env = seeded(Policy()), Pole()
    optimizer = optim.Adam(model.parameters(), lr=3e-2)
    for episode in range(5):
        state, choices = env.reset(episode), np.random.RandomState(episode).randint(0, 2, 30)
        for choice in choices:
            state, reward, done = env.step(select_action(model, state, int(choice)))
            model.rewards.append(reward)
            if done:
                break
        yield finish_episode(model, optimizer)
