"""Whether a model's output is any good: questions, answers, grades."""
