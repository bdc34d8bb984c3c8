"""The FET family: from flake contours and a device specification to a layout."""
