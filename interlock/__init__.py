"""THE WORDS: what is proposed, decided, permitted, executed and recorded. Imports nothing of ours."""

__version__ = "0.1.0"
