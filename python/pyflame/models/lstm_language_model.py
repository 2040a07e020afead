"""A language model with an LSTM; names as in PyTorch's word_language_model example."""
from .. import nn, zeros


class LSTMLanguageModel(nn.Module):
    """Token ids (T, N) and the state of all layers to (log-probabilities (T * N, ntoken), new state). tie_weights: the decoder shares the encoder's weight;
    ninp must then be nhid (ValueError).

    ntoken: the number of tokens of the vocabulary. ninp: the size of an embedding. nhid: the size of the LSTM's state. nlayers: its layers. dropout: the probability of
    zeros in the embeddings, between the layers and in the output.
    """

    def __init__(self, ntoken, ninp=200, nhid=200, nlayers=2, dropout=0.5, tie_weights=False):
        super().__init__()
        self.ntoken, self.nhid, self.nlayers = ntoken, nhid, nlayers
        self.drop = nn.Dropout(dropout)
        self.encoder = nn.Embedding(ntoken, ninp)
        self.rnn = nn.LSTM(ninp, nhid, nlayers, dropout=dropout)
        self.decoder = nn.Linear(nhid, ntoken)
        if tie_weights:
            if nhid != ninp:
                raise ValueError(f"LSTMLanguageModel: tied weights need equal sizes; got nhid {nhid} and ninp {ninp}; expected the same")
            self.decoder.weight = self.encoder.weight
        nn.init.uniform_(self.encoder.weight, -0.1, 0.1)
        nn.init.zeros_(self.decoder.bias)
        nn.init.uniform_(self.decoder.weight, -0.1, 0.1)

    def forward(self, input, hidden):
        output, hidden = self.rnn(self.drop(self.encoder(input)), hidden)
        decoded = self.decoder(self.drop(output)).view(-1, self.ntoken)
        return nn.functional.log_softmax(decoded, dim=1), hidden

    def init_hidden(self, batch):
        """The state before the first token: two tensors of zeros (nlayers, batch, nhid)."""
        weight = self.decoder.weight
        return tuple(zeros(self.nlayers, batch, self.nhid, dtype=weight.dtype, device=weight.device) for _ in range(2))
