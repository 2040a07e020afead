"""Probability distributions: draws (with gradients where has_rsample), densities, entropies, divergences. Names and numbers are PyTorch's."""
from . import constraints, kl, transforms  # noqa: F401
from .continuous import Cauchy, Exponential, Gumbel, HalfCauchy, HalfNormal, Laplace, Normal, Uniform, VonMises  # noqa: F401
from .discrete import (  # noqa: F401
    Bernoulli,
    Binomial,
    Categorical,
    Geometric,
    Multinomial,
    NegativeBinomial,
    OneHotCategorical,
    OneHotCategoricalStraightThrough,
    Poisson,
)
from .distribution import Distribution, ExponentialFamily  # noqa: F401
from .gammas import Beta, Chi2, Dirichlet, FisherSnedecor, Gamma, StudentT  # noqa: F401
from .kl import kl_divergence, register_kl  # noqa: F401
from .matrices import LKJCholesky, Wishart  # noqa: F401
from .multivariate import LowRankMultivariateNormal, MultivariateNormal  # noqa: F401
from .relaxed import ContinuousBernoulli, RelaxedBernoulli, RelaxedOneHotCategorical  # noqa: F401
from .transformed import (  # noqa: F401
    Independent,
    InverseGamma,
    Kumaraswamy,
    LogisticNormal,
    LogNormal,
    MixtureSameFamily,
    Pareto,
    TransformedDistribution,
    Weibull,
)
from .transforms import (  # noqa: F401
    AbsTransform,
    AffineTransform,
    ComposeTransform,
    ExpTransform,
    PowerTransform,
    SigmoidTransform,
    SoftmaxTransform,
    SoftplusTransform,
    StickBreakingTransform,
    TanhTransform,
    Transform,
    identity_transform,
)
