"""Gymnasium spaces of layouts and edits: fixed-shape `Dict` subclasses with two-way conversions.

Every space is a flat dict of padded arrays, counts and indices, so that it batches into vector environments with
shared memory and goes straight into SB3's MultiInputPolicy. The published maxima are module constants; what does not
fit raises an error and is never cut silently.
"""

from edagym.spaces.actions import (
    MAX_WIDTH_UM,
    OPERATIONS,
    Action,
    Command,
    EditSpace,
    action_from_json,
    action_text,
    action_to_json,
    parse_action_text,
)
from edagym.spaces.contours import (
    MAX_HOLE_POINTS,
    MAX_HOLES,
    MAX_LAYERS,
    MAX_REGIONS,
    MAX_RING_POINTS,
    ContourSpace,
)
from edagym.spaces.drc_actions import ActionContext, DRCActionSpace, drc_action_from_json, drc_action_to_json
from edagym.spaces.drc_edits import (
    AddShape,
    ChangeShape,
    DRCEdit,
    MoveCell,
    ShapeRef,
    drc_edit_from_json,
    drc_edit_to_json,
)
from edagym.spaces.drc_queries import Query
from edagym.spaces.edits import AddPath, AddPolygon, Clear, Cut, Edit, edit_from_json, edit_to_json
from edagym.spaces.layout import MAX_SHAPE_POINTS, MAX_SHAPES, LayoutSpace
from edagym.spaces.rings import MAX_COORD_UM
from edagym.spaces.task import MAX_RULES, TaskSpace

__all__ = [
    "Action",
    "ActionContext",
    "AddPath",
    "AddPolygon",
    "AddShape",
    "ChangeShape",
    "Clear",
    "Command",
    "ContourSpace",
    "Cut",
    "DRCActionSpace",
    "DRCEdit",
    "Edit",
    "EditSpace",
    "LayoutSpace",
    "MAX_COORD_UM",
    "MAX_HOLES",
    "MAX_HOLE_POINTS",
    "MAX_LAYERS",
    "MAX_REGIONS",
    "MAX_RING_POINTS",
    "MAX_RULES",
    "MAX_SHAPES",
    "MAX_SHAPE_POINTS",
    "MAX_WIDTH_UM",
    "MoveCell",
    "OPERATIONS",
    "Query",
    "ShapeRef",
    "TaskSpace",
    "action_from_json",
    "action_text",
    "action_to_json",
    "drc_action_from_json",
    "drc_action_to_json",
    "drc_edit_from_json",
    "drc_edit_to_json",
    "edit_from_json",
    "edit_to_json",
    "parse_action_text",
]
