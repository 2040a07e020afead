"""PPO on a small control task: a Gaussian policy with a learned deviation, generalized advantages, clipped losses, minibatches from a permutation, an early stop by KL."""
import numpy as np
import torch
import torch.nn as nn
from support import numbers, seeded
from torch.distributions import Normal
from torch.distributions.kl import kl_divergence
from torch.utils.data import BatchSampler, SequentialSampler


def layer_init(layer, std=np.sqrt(2), bias_const=0.0):
    torch.nn.init.orthogonal_(layer.weight, std)
    torch.nn.init.constant_(layer.bias, bias_const)
    return layer


class Agent(nn.Module):
    def __init__(self, obs=4, act=2):
        super().__init__()
        self.critic = nn.Sequential(layer_init(nn.Linear(obs, 16)), nn.Tanh(), layer_init(nn.Linear(16, 1), std=1.0))
        self.actor_mean = nn.Sequential(layer_init(nn.Linear(obs, 16)), nn.Tanh(), layer_init(nn.Linear(16, act), std=0.01))
        self.actor_logstd = nn.Parameter(torch.zeros(1, act))

    def get_value(self, x):
        return self.critic(x)

    def get_action_and_value(self, x, noise=None, action=None):
        mean = self.actor_mean(x)
        probs = Normal(mean, torch.exp(self.actor_logstd.expand_as(mean)))
        if action is None:
            action = probs.mean + probs.stddev * noise
        return action, probs.log_prob(action).sum(1), probs.entropy().sum(1), self.critic(x), probs


def step(obs, action):
    nxt = torch.clamp(0.9 * obs + 0.1 * torch.cat([action, -action], dim=1), -3, 3)
    return nxt, -(nxt**2).sum(1) * 0.1, (nxt.abs().amax(1) > 2.0)


def main():
    steps, envs, gamma, lam = 16, 4, 0.99, 0.95
    agent = seeded(Agent())
    optimizer = torch.optim.Adam(agent.parameters(), lr=3e-3, eps=1e-5)
    obs, actions = torch.zeros((steps, envs, 4)), torch.zeros((steps, envs) + (2,))
    logprobs, rewards, dones, values = (torch.zeros((steps, envs)) for _ in range(4))
    next_obs, next_done = torch.Tensor(numbers(envs, 4)), torch.zeros(envs)
    for update in range(1, 4):
        optimizer.param_groups[0]["lr"] = (1.0 - (update - 1.0) / 3) * 3e-3
        for t in range(steps):
            obs[t], dones[t] = next_obs, next_done
            with torch.no_grad():
                action, logprob, _, value, _ = agent.get_action_and_value(next_obs, numbers(envs, 2, seed=100 * update + t))
                values[t] = value.flatten()
            actions[t], logprobs[t] = action, logprob
            next_obs, reward, done = step(next_obs, action)
            rewards[t], next_done = reward.view(-1), torch.Tensor(done.cpu().numpy())
            next_obs = torch.where(done[:, None], numbers(envs, 4, seed=7), next_obs)
        with torch.no_grad():
            next_value = agent.get_value(next_obs).reshape(1, -1)
            advantages, last = torch.zeros_like(rewards), 0
            for t in reversed(range(steps)):
                alive = 1.0 - (next_done if t == steps - 1 else dones[t + 1])
                following = next_value if t == steps - 1 else values[t + 1]
                delta = rewards[t] + gamma * following * alive - values[t]
                advantages[t] = last = delta + gamma * lam * alive * last
            returns = advantages + values
        b_obs, b_logprobs, b_actions = obs.reshape((-1, 4)), logprobs.reshape(-1), actions.reshape((-1, 2))
        b_adv, b_ret, b_val = advantages.reshape(-1), returns.reshape(-1), values.reshape(-1)
        order = np.random.RandomState(update).permutation(steps * envs)
        old = agent.get_action_and_value(b_obs, action=b_actions)[-1]
        old = Normal(old.loc.detach(), old.scale.detach())
        clipfracs = []
        for index in BatchSampler(SequentialSampler(order), 16, drop_last=True):
            mb = order[index]
            _, new, entropy, value, _ = agent.get_action_and_value(b_obs[mb], action=b_actions[mb])
            logratio = new - b_logprobs[mb]
            ratio = logratio.exp()
            with torch.no_grad():
                clipfracs += [((ratio - 1.0).abs() > 0.2).float().mean().item()]
            adv = (b_adv[mb] - b_adv[mb].mean()) / (b_adv[mb].std() + 1e-8)
            pg = torch.max(-adv * ratio, -adv * torch.clamp(ratio, 1 - 0.2, 1 + 0.2)).mean()
            value = value.view(-1)
            clipped = b_val[mb] + torch.clamp(value - b_val[mb], -0.2, 0.2)
            v_loss = 0.5 * torch.max((value - b_ret[mb]) ** 2, (clipped - b_ret[mb]) ** 2).mean()
            loss = pg - 0.01 * entropy.mean() + v_loss * 0.5
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()
            yield loss.item()
        with torch.no_grad():
            yield kl_divergence(old, agent.get_action_and_value(b_obs, action=b_actions)[-1]).sum(-1).mean().item()
        y_pred, y_true = b_val.cpu().numpy(), b_ret.cpu().numpy()
        yield float(1 - np.var(y_true - y_pred) / np.var(y_true)) + float(np.mean(clipfracs))
