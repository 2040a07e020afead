"""Soft actor-critic: a policy of tanh-transformed normals, twin critics and their averages by functions of lists of tensors, an entropy weight that is
learned, a penalty by Beta and Dirichlet policies."""
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from support import integers, numbers, seeded
from torch.distributions import Beta, Dirichlet, Independent, Normal, TransformedDistribution, kl_divergence
from torch.distributions.transforms import AffineTransform, TanhTransform

DTYPE = "float64"
OBS, ACT, GAMMA = 5, 2, 0.9


class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(OBS, 16), nn.Tanh(), nn.Linear(16, 2 * ACT))
        self.beta = nn.Linear(OBS, 2 * ACT)

    def forward(self, obs, noise):
        mu, log_std = self.trunk(obs).chunk(2, dim=-1)
        std = (-5 + 0.5 * 7 * (torch.tanh(log_std) + 1)).exp()
        policy = TransformedDistribution(Independent(Normal(mu, std), 1), [TanhTransform(cache_size=1), AffineTransform(0.0, 2.0)])
        action = 2 * torch.tanh(mu + std * noise)
        return action, policy.log_prob(action)


def critics(seed):
    return seeded(nn.ModuleList([nn.Sequential(nn.Linear(OBS + ACT, 16), nn.ReLU6(), nn.Linear(16, 1)) for _ in range(2)]), seed)


def values(critic, obs, action):
    pair = torch.cat([obs, action], dim=-1)
    return [q(pair).squeeze(-1) for q in critic]


def main():
    actor, critic, target = seeded(Actor()), critics(1), critics(2)
    target.load_state_dict(critic.state_dict())
    log_alpha = torch.tensor(np.log(0.2), requires_grad=True)
    actor_optimizer, critic_optimizer, alpha_optimizer = (torch.optim.Adam(p, lr=1e-2) for p in (actor.parameters(), critic.parameters(), [log_alpha]))
    buffer = {"obs": torch.empty(64, OBS), "next": torch.empty(64, OBS), "done": torch.zeros(64, dtype=torch.bool)}
    buffer["obs"][:] = numbers(64, OBS)
    buffer["next"].copy_(buffer["obs"].roll(-1, 0))
    buffer["done"][7::8] = True
    buffer["reward"] = buffer["obs"].norm(dim=1).neg_()
    for step in range(5):
        rows = integers(64, 16, seed=step)
        batch = {name: column[rows] for name, column in buffer.items()}
        with torch.no_grad():
            action, log_prob = actor(batch["next"], numbers(16, ACT, seed=step))
            best = torch.min(*values(target, batch["next"], action)) - log_alpha.exp() * log_prob
            wanted = batch["reward"] + GAMMA * ~batch["done"] * best
        played = numbers(16, ACT, seed=step + 20).clamp(-2, 2)
        critic_loss = sum(F.mse_loss(q, wanted) for q in values(critic, batch["obs"], played))
        critic_optimizer.zero_grad()
        critic_loss.backward()
        critic_optimizer.step()

        critic.requires_grad_(False)
        action, log_prob = actor(batch["obs"], numbers(16, ACT, seed=step + 50))
        rates = F.softplus(actor.beta(batch["obs"])) + 1
        other = Beta(*rates.chunk(2, dim=-1)).log_prob(torch.full((16, ACT), 0.3)).sum(-1).mean() - kl_divergence(Dirichlet(rates), Dirichlet(torch.ones(2 * ACT))).mean()
        actor_loss = (log_alpha.exp().detach() * log_prob - torch.minimum(*values(critic, batch["obs"], action))).mean() - 0.01 * other
        actor_optimizer.zero_grad()
        actor_loss.backward()
        norm = nn.utils.get_total_norm([p.grad for p in actor.parameters()])
        actor_optimizer.step()
        critic.requires_grad_(True)

        alpha_loss = -(log_alpha * (log_prob.detach() - ACT)).mean()
        alpha_optimizer.zero_grad()
        alpha_loss.backward()
        alpha_optimizer.step()
        with torch.no_grad():
            torch._foreach_mul_(list(target.parameters()), 0.9)
            torch._foreach_add_(list(target.parameters()), list(critic.parameters()), alpha=0.1)
        yield from (critic_loss.item(), actor_loss.item(), norm.item(), log_alpha.item())
