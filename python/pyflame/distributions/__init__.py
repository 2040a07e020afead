"""Probability distributions: draws (with gradients where has_rsample), densities, entropies, divergences. Names and numbers are PyTorch's."""
from .. import _paths, _refused
from . import constraints, kl, transforms, utils  # noqa: F401
from .constraint_registry import biject_to, transform_to  # noqa: F401
from .continuous import Cauchy, Exponential, GeneralizedPareto, Gumbel, HalfCauchy, HalfNormal, Laplace, Normal, Uniform, VonMises  # noqa: F401
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
    CatTransform,
    ComposeTransform,
    CorrCholeskyTransform,
    CumulativeDistributionTransform,
    ExpTransform,
    IndependentTransform,
    LowerCholeskyTransform,
    PositiveDefiniteTransform,
    PowerTransform,
    ReshapeTransform,
    SigmoidTransform,
    SoftmaxTransform,
    SoftplusTransform,
    StackTransform,
    StickBreakingTransform,
    TanhTransform,
    Transform,
    identity_transform,
)

globals().update(_paths.add(__name__, (
    "bernoulli", "beta", "binomial", "categorical", "cauchy", "chi2", "continuous_bernoulli", "dirichlet", "exp_family", "exponential", "fishersnedecor", "gamma", "generalized_pareto", "geometric", "gumbel",
    "half_cauchy", "half_normal", "independent", "inverse_gamma", "kumaraswamy", "laplace", "lkj_cholesky", "log_normal", "logistic_normal", "lowrank_multivariate_normal",
    "mixture_same_family", "multinomial", "multivariate_normal", "negative_binomial", "normal", "one_hot_categorical", "pareto", "poisson", "relaxed_bernoulli", "relaxed_categorical",
    "studentT", "transformed_distribution", "uniform", "von_mises", "weibull", "wishart"), _paths.names_of(__name__)))  # fmt: skip
_refused.unknown(globals())
