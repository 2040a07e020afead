"""Reinforcement learning by PPO: Categorical and Normal policies with shared features, generalized advantages, entropy, and a clipped ratio."""
import torch
import torch.nn as nn
from support import integers, numbers, seeded
from torch.distributions import Categorical, Independent, Normal, kl_divergence


def layer_init(layer, std=2**0.5, bias=0.0):
    torch.nn.init.orthogonal_(layer.weight, std)
    torch.nn.init.constant_(layer.bias, bias)
    return layer


class Agent(nn.Module):
    def __init__(self, seen=6, moves=4):
        super().__init__()
        self.network = nn.Sequential(layer_init(nn.Linear(seen, 16)), nn.Tanh(), layer_init(nn.Linear(16, 16)), nn.Tanh())
        self.actor = layer_init(nn.Linear(16, moves), std=0.01)
        self.mean = layer_init(nn.Linear(16, 2), std=0.01)
        self.log_std = nn.Parameter(torch.zeros(1, 2))
        self.critic = layer_init(nn.Linear(16, 1), std=1)

    def policies(self, hidden):
        mean = self.mean(hidden)
        return Categorical(logits=self.actor(hidden)), Independent(Normal(mean, self.log_std.expand_as(mean).exp()), 1)

    def forward(self, state, move=None, force=None):
        hidden = self.network(state)
        moves, forces = self.policies(hidden)
        if move is None:
            move, force = moves.sample(), forces.sample()
        return move, force, moves.log_prob(move) + forces.log_prob(force), moves.entropy() + forces.entropy(), self.critic(hidden).flatten()


def advantages(rewards, values, done, last, gamma=0.99, lam=0.95):
    out, running = torch.zeros_like(rewards), 0
    for t in reversed(range(len(rewards))):
        alive = 1.0 - done[t]
        following = values[t + 1] if t + 1 < len(rewards) else last
        delta = rewards[t] + gamma * following * alive - values[t]
        running = delta + gamma * lam * alive * running
        out[t] = running
    return out


def main():
    agent = seeded(Agent())
    optimizer = torch.optim.Adam(agent.parameters(), lr=2.5e-3, eps=1e-5)
    steps, count = 16, 4
    states = numbers(steps, count, 6)
    with torch.no_grad():
        sampled, force, *_ = agent(states[0])
        assert sampled.shape == (count,) and sampled.dtype == torch.int64 and force.shape == (count, 2)
    moves, forces = integers(4, steps, count, seed=1), numbers(steps, count, 2, seed=2)
    rewards, done = numbers(steps, count, seed=3), (integers(10, steps, count, seed=4) == 0).float()
    with torch.no_grad():
        old = [agent(states[t], moves[t], forces[t]) for t in range(steps)]
        log_old, values = torch.stack([o[2] for o in old]), torch.stack([o[4] for o in old])
        gains = advantages(rewards, values, done, values[-1])
        returns = gains + values
        before = agent.policies(agent.network(states.flatten(0, 1)))[0]
    b_states, b_moves, b_forces = states.reshape((-1, 6)), moves.reshape(-1), forces.reshape(-1, 2)
    order = integers(1000, 5, 32, seed=5) % (steps * count)
    for inds in order:
        _, _, log_new, entropy, value = agent(b_states[inds], b_moves.long()[inds], b_forces[inds])
        logratio = log_new - log_old.view(-1)[inds]
        ratio = logratio.exp()
        gain = gains.view(-1)[inds]
        gain = (gain - gain.mean()) / (gain.std() + 1e-8)
        pg_loss = torch.max(-gain * ratio, -gain * torch.clamp(ratio, 1 - 0.2, 1 + 0.2)).mean()
        clipped = values.view(-1)[inds] + torch.clamp(value - values.view(-1)[inds], -0.2, 0.2)
        v_loss = 0.5 * torch.max((value - returns.view(-1)[inds]) ** 2, (clipped - returns.view(-1)[inds]) ** 2).mean()
        loss = pg_loss - 0.01 * entropy.mean() + v_loss * 0.5
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
        optimizer.step()
        yield loss.item()
    after = agent.policies(agent.network(b_states))[0]
    yield 1 + kl_divergence(before, after).mean().item()
