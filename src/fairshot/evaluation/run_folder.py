"""The folder of a run: what lies in it, by name. Whoever reads a run finds its parts by these."""

RESULT = "result.json"
RECIPE = "recipe.yaml"  # with every default filled in
LOG = "log.txt"
MODEL = "model.safetensors"  # all that the base session learnt
FEATURES = "features.safetensors"  # of the test images of all sessions
TRAINING = "training.csv"
TRAINING_COLUMNS = ("step", "epoch", "loss", "learning_rate", "images_per_second")
CHECKPOINTS = "checkpoints"
FIGURES = "figures"
