from tests.trainer.ops import naive
from tests.trainer.ops.checks import arrays, assert_same
from trainer.ops.geglu import geglu


def test_it_follows_the_tanh_form_and_its_gradients():
    assert_same(geglu, naive.geglu, [3 * x for x in arrays((4, 5), (4, 5))])
