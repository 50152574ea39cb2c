"""The figures: one module each, data first, then the plot drawn from the data alone.

``python -m paper_figures`` draws them all; ``FIGURES`` names them in reading order. A figure is a module of
its own name in this room, with three functions:

    '''Message of the figure; which claims it shows; what is drawn, over what, with which units.'''

    import torch
    from tqdm import tqdm

    import numerics
    from paper_figures import style
    from paper_figures.settings import Settings
    from paper_figures.tables import Table, from_rows

    READS_DATA = False  # True: draws from settings.speeds() where a data file is given
    READS_PROBE = True  # only in figures that draw from probe_study


    def compute(settings: Settings) -> dict[str, Table]:
        '''One table or several, each a mapping column -> values: the number behind every mark.'''
        generator = settings.generator()  # seeded; draw in float64: torch.randn(..., dtype=torch.float64)
        rows = [
            {"tokens": tokens, "norm": ...}  # numbers or text
            for tokens in tqdm((4, 8) if settings.quick else (4, 8, 16), desc="regularisers", disable=None)
        ]
        return {"norms": from_rows(rows)}


    def finding(tables: Mapping[str, Table]) -> str:
        '''One sentence with the numbers that matter: printed, and kept in the manifest.'''


    def draw(tables: Mapping[str, Table]) -> Figure:
        '''Reads the tables and nothing else; columns arrive as NumPy arrays of int, float or str.'''
        figure = style.new_figure(width=style.COLUMN, height=2.6)
        axes = figure.subplots()
        axes.plot(tables["norms"]["tokens"], tables["norms"]["norm"], **style.series(0), label="measured")
        axes.set(xlabel="tokens T", ylabel="spectral norm of a block", title="What the figure says")
        return figure

Everything else is done for them (``paper_figures.render``): ``compute``'s tables become ``NAME-TABLE.csv``,
``draw`` gets what those files hold, and the picture goes to ``NAME.png`` and ``NAME.pdf``, the same bytes on
every run. No pyplot: it keeps global state. A figure's set of tables does not depend on the settings.
``compute`` takes at most about 10 s with ``quick`` and 2 minutes without, on two cores.
The figures of trained forecasters share one training (``trained_variants``), which the first of them pays for.
"""

FIGURES: dict[str, str] = {
    "sensitivity_against_length": "diagonal and off-diagonal blocks of the Jacobian against T (A1 to A4)",
    "sensitivity_maps": "the T x T map of block norms, random tokens and METR-LA windows (A1, A2)",
    "regularisers": "what mask, penalty and dropout do to a_ii and to J_ii (A5)",
    "first_token": "each input's share after L layers: attention and convolution (A6)",
    "sink_geometry": "when a sink exists and what it costs: the two hull distances in the plane (B1, B2)",
    "switch_cost": "price of sink and diagonal against leakage, n, t and z, in three norms (B4)",
    "price_phase_diagram": "which pattern is cheaper, over (G, n) and over (t, z), in three norms (B4)",
    "price_against_rank": "what a diagonal costs at each rank, beside the sink's rank 1 (B2, B3)",
    "hard_switch": "how silent a head is against its weight on the sink (B5)",
    "oversmoothing_depth": "relative dispersion against depth: dense, sparse, diagonal and sink (B7)",
    "training_to_the_price": "gradient descent with weight decay lands on the exact optimum (B4)",
    "table_audit": "P1's table: relative changes, and what is significant under which choice (A7)",
    "attention_after_training": "where attention looks after training, and the diagonal's mass (P1's Figure 1)",
    "error_by_step": "error by step ahead of the five variants: P1's, ours on METR-LA and on synthetic roads (A7)",
    "sensitivity_after_training": "block norms of the Jacobian before and after training, on real windows (A1, A4)",
    "learning_curves": "training and validation error against epoch, beside the least possible error",
    "sinks_by_layer": "attention on the sink and its price, by layer of three pretrained models (B8)",
    "price_against_mass": "whether prices say which heads of pretrained models have a sink (B8)",
    "head_kinds": "what pretrained heads are: switch, gated MLP or mixer, layer by layer (B6, B8)",
    "sink_emergence": "sink mass and price as a byte model learns: two softmaxes, two decays (B2, B5)",
}
"""Name of a figure, which is also its module's, and what it shows."""

__all__ = ["FIGURES"]
