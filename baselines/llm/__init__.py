"""Language-model policies over any OpenAI-compatible endpoint."""
