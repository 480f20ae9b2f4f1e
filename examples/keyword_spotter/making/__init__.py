"""How the model and its clips were made: speech, augmentation, training, evaluation. The demo uses nothing of it."""
