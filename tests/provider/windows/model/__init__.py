"""The real `WindowRun` beside the model in `models/`: traces of each are played by the other."""
