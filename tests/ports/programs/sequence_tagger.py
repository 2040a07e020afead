"""A tagger of words with packed sequences: embeddings of letters and words, a bidirectional LSTM with projections, and a conditional random field."""
import torch
import torch.nn as nn
from support import integers, seeded
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pack_sequence, pad_packed_sequence, pad_sequence

TAGS = 5


class CRF(nn.Module):
    def __init__(self, tags):
        super().__init__()
        self.transitions = nn.Parameter(torch.empty(tags, tags))
        self.start, self.end = nn.Parameter(torch.empty(tags)), nn.Parameter(torch.empty(tags))
        for p in self.parameters():
            nn.init.uniform_(p, -0.1, 0.1)

    def forward(self, emissions, tags, mask):
        return (self._normalizer(emissions, mask) - self._score(emissions, tags, mask)).sum() / mask.sum()

    def _score(self, emissions, tags, mask):
        rows, mask = torch.arange(tags.shape[1]), mask.to(emissions)
        score = self.start[tags[0]] + emissions[0, rows, tags[0]]
        for i in range(1, len(tags)):
            score += (self.transitions[tags[i - 1], tags[i]] + emissions[i, rows, tags[i]]) * mask[i]
        last = tags[mask.long().sum(dim=0) - 1, rows]
        return score + self.end[last]

    def _normalizer(self, emissions, mask):
        score = self.start + emissions[0]
        for i in range(1, emissions.size(0)):
            following = torch.logsumexp(score.unsqueeze(2) + self.transitions + emissions[i].unsqueeze(1), dim=1)
            score = torch.where(mask[i].unsqueeze(1), following, score)
        return torch.logsumexp(score + self.end, dim=1)

    def decode(self, emissions, mask):
        score, history = self.start + emissions[0], []
        for i in range(1, len(emissions)):
            following, at = (score.unsqueeze(2) + self.transitions + emissions[i].unsqueeze(1)).max(dim=1)
            score = torch.where(mask[i].unsqueeze(1), following, score)
            history.append(at)
        score += self.end
        paths = []
        for row, end in enumerate(mask.long().sum(dim=0) - 1):
            path = [score[row].max(dim=0)[1].item()]
            for at in reversed(history[:end]):
                path.append(at[row][path[-1]].item())
            paths.append(path[::-1])
        return paths


class Tagger(nn.Module):
    def __init__(self, words=30, letters=12, width=10, hidden=12):
        super().__init__()
        self.letters = nn.EmbeddingBag(letters, 6, mode="mean", padding_idx=0)
        self.words = nn.Embedding.from_pretrained(integers(7, words, width).float() / 7, freeze=False)
        self.lstm = nn.LSTM(width + 6, hidden, num_layers=2, bidirectional=True, proj_size=8, dropout=0.0)
        self.tag = nn.Linear(16, TAGS)

    def forward(self, sentences, spelled):
        lengths = torch.as_tensor([len(s) for s in sentences], dtype=torch.int64)
        words, chars = pad_sequence(sentences), pad_sequence(spelled)
        embedded = torch.cat((self.words(words), self.letters(chars.flatten(0, 1)).unflatten(0, words.shape)), -1)
        out, (h, c) = self.lstm(pack_padded_sequence(embedded, lengths, enforce_sorted=False))
        assert isinstance(out, PackedSequence) and h.shape == (4, len(sentences), 8) and c.shape[-1] == 12
        out = PackedSequence(torch.tanh(out.data), out.batch_sizes, out.sorted_indices, out.unsorted_indices)
        out, lengths = pad_packed_sequence(out)
        return self.tag(out), torch.arange(len(out))[:, None] < lengths[None, :]


def main():
    model, crf = seeded(Tagger()), seeded(CRF(TAGS), 1)
    optimizer = torch.optim.Adagrad(list(model.parameters()) + list(crf.parameters()), lr=0.05)
    for step in range(5):
        lengths = [3 + (step * 2 + i * 3) % 6 for i in range(5)]
        sentences = [integers(30, n, seed=step * 10 + i) for i, n in enumerate(lengths)]
        spelled = [integers(12, n, 4, seed=step * 10 + i) for i, n in enumerate(lengths)]
        tags = pad_sequence([(s * 7 + 1) % TAGS for s in sentences])
        emissions, mask = model(sentences, spelled)
        loss = crf(emissions, tags, mask)
        model.zero_grad()
        crf.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.item()
    packed = pack_sequence(sentences, enforce_sorted=False)
    assert int(packed.batch_sizes.sum()) == sum(lengths)
    with torch.no_grad():
        paths = crf.decode(*model(sentences, spelled))
    assert [len(p) for p in paths] == lengths
    yield 1.0 + sum(map(sum, paths))
