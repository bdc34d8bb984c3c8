"""The window of ``render_mode="human"`` (pygame, optional)."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.error import DependencyNotInstalled


class Window:
    """A pygame window that shows pictures.

    Args:
        title: Caption.
        fps: Most pictures per second.

    Raises:
        DependencyNotInstalled: If pygame is missing.
    """

    def __init__(self, title: str, fps: float) -> None:
        try:
            import pygame
        except ImportError as e:
            raise DependencyNotInstalled('render_mode="human" needs pygame: run `pip install pygame`') from e
        self._pygame = pygame
        self._fps = fps
        pygame.display.init()
        pygame.display.set_caption(title)
        self._clock = pygame.time.Clock()
        self._screen: Any = None

    def show(self, image: np.ndarray) -> None:
        """Show a picture, uint8 (height, width, 3)."""
        pygame = self._pygame
        size = (image.shape[1], image.shape[0])
        if self._screen is None or self._screen.get_size() != size:
            self._screen = pygame.display.set_mode(size)
        pygame.surfarray.blit_array(self._screen, image.transpose(1, 0, 2))
        pygame.event.pump()
        pygame.display.flip()
        self._clock.tick(self._fps)

    def close(self) -> None:
        """Close the window."""
        self._pygame.display.quit()
