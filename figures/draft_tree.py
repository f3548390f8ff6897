"""The founding drafter's tree of topk 4, two steps, sixteen tokens, with path probabilities."""

from founding import Rows, founding, save
from matplotlib.figure import Figure

from specsim.report.figure import new_figure, profile_caption
from specsim.report.plots import DrawnTree, plot_tree, typical_tree
from specsim.setting import SpecSetting

HEADER = ("node", "parent", "depth", "rank", "path_probability", "path_confidence", "verified")


def tree() -> DrawnTree:
    """Build the tree of a typical context."""
    return typical_tree(founding().acceptance(), SpecSetting.of(4, 2, 16))


def rows() -> Rows:
    """Return the numbers of the figure."""
    drawn = tree()
    beam, verified = drawn.beam, drawn.verified
    return [
        (
            node,
            float(beam.parent[node, 0]),
            float(beam.depth[node]),
            float(beam.rank[node]),
            float(beam.p[node, 0]),
            float(beam.q[node, 0]),
            float(verified[node]),
        )
        for node in range(len(beam.depth))
    ]


def figure() -> Figure:
    """Draw it."""
    note = "In a node: probability that its whole path is accepted, per cent, in a typical context."
    result, axes = new_figure(profile_caption(founding(), note), (7.5, 5.5))
    plot_tree(axes, tree())
    return result


if __name__ == "__main__":
    save(__file__, HEADER, rows(), figure())
