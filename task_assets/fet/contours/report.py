"""Build the contour library from a folder of masks and micrographs, and say how good it is.

The one entry point is `generate_contours`; the command line is a thin face on it.
"""

from __future__ import annotations

import json
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from edagym.errors import TaskError
from edagym.task_assets.fet.contours.library import SOURCES, TIERS, Contour, contours_to_json

MATCH_IOU = 0.5


@dataclass(frozen=True, slots=True)
class MaskRow:
    """One line of the mask check table.

    Attributes:
        image: Image key.
        components: 8-connected components of the non-zero pixels.
        kept_areas: Areas in pixels of those that pass the size filter, largest first.
    """

    image: str
    components: int
    kept_areas: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Score:
    """The colour method against the masks, over the micrographs that have one.

    A flake is found when an outline of its own overlaps it by an IoU of at least 0.5. Outlines that lie on a labelled
    flake which the size filter drops count neither way. Masks label thin flakes only, so that bright (thick) outlines
    are left out of `precision`; and they label only the thickness classes of interest, so that an unlabelled dark
    outline may still be a real flake: `precision` is a lower bound.

    Attributes:
        flakes: Labelled flakes that pass the size filter.
        outlines: Thin outlines of the colour method on these micrographs.
        found: Flakes found.
        precision: found / outlines.
        recall: found / flakes.
        median_iou: Median IoU of found flakes.
        mean_iou: Mean IoU of found flakes.
        thick_outlines: Bright outlines, not scored.
    """

    flakes: int
    outlines: int
    found: int
    precision: float
    recall: float
    median_iou: float
    mean_iou: float
    thick_outlines: int


@dataclass(frozen=True, slots=True)
class ContourReport:
    """What `generate_contours` made.

    Attributes:
        contours: The library, masks first.
        masks: The mask check table.
        micrographs: Number of micrographs read.
        dropped: Micrograph outlines dropped, by reason.
        score_segmented: The colour method before the rules drop anything.
        score_kept: After the rules.
        matches: ``(image, mask component, micrograph component, IoU)`` of every found flake before the rules.
        files: Files written, names relative to the output folder.
    """

    contours: tuple[Contour, ...]
    masks: tuple[MaskRow, ...]
    micrographs: int
    dropped: dict[str, int]
    score_segmented: Score
    score_kept: Score
    matches: tuple[tuple[str, int, int, float], ...]
    files: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as JSON-ready data (the contours themselves are in ``contours.json``)."""
        return {
            "contours": len(self.contours),
            "by_source": {s: _figures([c for c in self.contours if c.source == s]) for s in SOURCES[:2]},
            "all": _figures(self.contours),
            "masks": [asdict(row) for row in self.masks],
            "micrographs": self.micrographs,
            "dropped": self.dropped,
            "score_segmented": asdict(self.score_segmented),
            "score_kept": asdict(self.score_kept),
            "matches": [list(m) for m in self.matches],
            "files": list(self.files),
        }

    @property
    def text(self) -> str:
        """The report as plain text."""
        lines = ["Masks: components, kept by size, areas in px"]
        lines += [
            f"  {r.image:<24}{r.components:>4}{len(r.kept_areas):>4}  {', '.join(map(str, r.kept_areas))}"
            for r in self.masks
        ]
        lines += ["", f"Contours: {len(self.contours)} (area <= 800 um2)"]
        for name in (*SOURCES[:2], "all"):
            f = _figures([c for c in self.contours if name in (c.source, "all")])
            if f["count"]:
                tiers = ", ".join(f"{t} {f['tiers'][t]}" for t in TIERS)
                lines.append(
                    f"  {name:<11}{f['count']:>4}  {tiers}; thick {f['thick']}, with holes {f['holed']}; medians: area "
                    f"{f['area_um2'][1]} um2 ({f['area_um2'][0]}-{f['area_um2'][2]}), solidity {f['solidity'][1]}, "
                    f"vertices {f['vertices'][1]}"
                )
        lines += ["", f"Outlines of {self.micrographs} micrographs that were dropped, by rule:"]
        lines += [f"  {reason:<14}{count:>4}" for reason, count in self.dropped.items()]
        lines += ["", "Colour method against masks (thin outlines; see the data card on reading the precision):"]
        for name, s in (("before the rules", self.score_segmented), ("after the rules", self.score_kept)):
            lines.append(
                f"  {name:<17} {s.found} of {s.flakes} flakes found (recall {s.recall:.2f}), {s.found} of {s.outlines} "
                f"thin outlines labelled (precision {s.precision:.2f}), IoU median {s.median_iou:.2f}, mean "
                f"{s.mean_iou:.2f}; {s.thick_outlines} thick outlines not scored"
            )
        return "\n".join(lines) + "\n"


def generate_contours(data_dir: Path, out_dir: Path, *, progress: bool = True) -> ContourReport:
    """Extract every real contour of a data folder and write the library, contact sheets and a report.

    Args:
        data_dir: Folder with ``masks/<set>/*.png`` and, or, ``micrographs/<set>/*.jpg`` (or a folder that holds such a
            folder called ``flakes``). A mask and a micrograph of the same set and stem belong together.
        out_dir: Output folder, made if missing. Gets ``contours.json``, ``report.json``, ``report.txt``,
            ``kept-*.png`` and ``dropped-*.png``.
        progress: Whether to show a progress bar.

    Returns:
        The report, which holds the contours.

    Raises:
        TaskError: If the folder holds no images or an image cannot be read.
    """
    # These load KLayout and image codecs; importing the package for its library alone must not.
    from edagym.task_assets.fet.contours import micrographs, pipeline, sheet

    masks, photos = _files(data_dir)
    out_dir.mkdir(parents=True, exist_ok=True)
    keys = pipeline.image_keys([*masks.values(), *photos.values()])
    kept_sheet, dropped_sheet = sheet.SheetWriter(out_dir, "kept"), sheet.SheetWriter(out_dir, "dropped")
    from_masks: list[Contour] = []
    from_photos: list[Contour] = []
    rows: list[MaskRow] = []
    dropped: Counter[str] = Counter()
    tally_all, tally_kept = _Tally(), _Tally()
    files = sorted(masks.keys() | photos.keys())
    for file in tqdm(files, desc="contours", unit="image", disable=not progress):
        key = keys[file]
        flakes: list[Contour] = []
        ignored: list[Contour] = []
        mask = pipeline.read_mask(masks[file]) if file in masks else None
        if mask is not None:
            found = list(pipeline.components(mask))
            areas = sorted((c.area for c in found if c.kept), reverse=True)
            rows.append(MaskRow(key, len(found), tuple(areas)))
            for component in found:
                contour = pipeline.contour_of(component, masks[file], key, "mask", {"method": "mask", "thick": False})
                if contour is not None:
                    (flakes if component.kept else ignored).append(contour)
        photo = micrographs.read_micrograph(photos[file]) if file in photos else None
        picture = photo.astype(np.uint8) if photo is not None else (mask != 0).astype(np.uint8) * 160  # type: ignore[union-attr]
        for contour in flakes:
            if contour.outer_area_um2 <= pipeline.MAX_AREA_UM2:
                from_masks.append(contour)
                kept_sheet.add(sheet.tile(contour, picture))
        if photo is None:
            continue
        outlines: list[tuple[Contour, str | None]] = []
        for segment in micrographs.segments(photo):
            candidate = micrographs.micrograph_contour(segment, photos[file], key)
            if candidate is not None:
                outlines.append((candidate, micrographs.doubt(segment.quality, candidate)))
        if mask is not None:
            tally_all.add(key, flakes, ignored, [c for c, _ in outlines])
            tally_kept.add(key, flakes, ignored, [c for c, reason in outlines if reason is None])
        known = [pipeline.placed(c) for c in flakes]
        for contour, reason in outlines:
            if reason is None and contour.outer_area_um2 > pipeline.MAX_AREA_UM2:
                reason = "over 800 um2"
            if reason is None and any(_overlap(pipeline.placed(contour), k) > 0.3 for k in known):
                reason = "is a mask's"
            if reason is None:
                from_photos.append(contour)
                kept_sheet.add(sheet.tile(contour, picture))
            else:
                dropped[reason] += 1
                if reason != "over 800 um2":
                    dropped_sheet.add(sheet.tile(contour, picture, reason))
    kept_sheet.close()
    dropped_sheet.close()
    sheets = [p.name for p in (*kept_sheet.paths, *dropped_sheet.paths)]
    report = ContourReport(
        contours=(*from_masks, *from_photos),
        masks=tuple(rows),
        micrographs=len(photos),
        dropped=dict(sorted(dropped.items())),
        score_segmented=tally_all.score(),
        score_kept=tally_kept.score(),
        matches=tuple(tally_all.matches),
        files=("contours.json", "report.json", "report.txt", *sheets),
    )
    (out_dir / "contours.json").write_text(contours_to_json(report.contours), encoding="utf-8")
    (out_dir / "report.json").write_text(json.dumps(report.to_dict(), indent=1) + "\n", encoding="utf-8")
    (out_dir / "report.txt").write_text(report.text, encoding="utf-8")
    return report


def _files(data_dir: Path) -> tuple[dict[tuple[str, str], Path], dict[tuple[str, str], Path]]:
    """Return the mask and micrograph files of a data folder by (set, stem)."""
    root = data_dir / "flakes" if (data_dir / "flakes").is_dir() else data_dir
    masks = {(p.parent.name, p.stem): p for p in root.glob("masks/*/*.png")}
    photos = {(p.parent.name, p.stem): p for ending in ("jpg", "png") for p in root.glob(f"micrographs/*/*.{ending}")}
    if not masks and not photos:
        raise TaskError(
            f"no flake images in {data_dir}",
            field="data_dir",
            allowed="masks/<set>/*.png and, or, micrographs/<set>/*.jpg",
        )
    return masks, photos


def _overlap(a: Any, b: Any) -> float:
    """Return the shared area of two polygons over the smaller one's area."""
    return a.intersection(b).area / min(a.area, b.area)


class _Tally:
    """Matches of outlines and labelled flakes, image by image."""

    def __init__(self) -> None:
        self.flakes = self.outlines = self.thick = 0
        self.matches: list[tuple[str, int, int, float]] = []

    def add(self, key: str, flakes: Sequence[Contour], ignored: Sequence[Contour], outlines: Sequence[Contour]) -> None:
        from edagym.task_assets.fet.contours.pipeline import placed

        truth = [placed(c) for c in flakes]
        shapes = [placed(c) for c in outlines]
        pairs = sorted(
            (
                (shape.intersection(flake).area / shape.union(flake).area, -i, -j)
                for i, flake in enumerate(truth)
                for j, shape in enumerate(shapes)
            ),
            reverse=True,
        )
        matched: dict[int, int] = {}
        for iou, i, j in pairs:
            if iou >= MATCH_IOU and -i not in matched and -j not in matched.values():
                matched[-i] = -j
                component = (flakes[-i].provenance["component"], outlines[-j].provenance["component"])
                self.matches.append((key, *component, round(iou, 4)))
        self.flakes += len(flakes)
        aside = [placed(c) for c in ignored]
        for j, (contour, shape) in enumerate(zip(outlines, shapes)):
            if j in matched.values():
                self.outlines += 1
            elif contour.provenance["thick"]:
                self.thick += 1
            elif not any(_overlap(shape, a) > 0.5 for a in aside):
                self.outlines += 1

    def score(self) -> Score:
        ious = [m[3] for m in self.matches]
        return Score(
            flakes=self.flakes,
            outlines=self.outlines,
            found=len(ious),
            precision=round(len(ious) / self.outlines, 4) if self.outlines else 0.0,
            recall=round(len(ious) / self.flakes, 4) if self.flakes else 0.0,
            median_iou=round(statistics.median(ious), 4) if ious else 0.0,
            mean_iou=round(statistics.fmean(ious), 4) if ious else 0.0,
            thick_outlines=self.thick,
        )


def _figures(contours: Sequence[Contour]) -> dict[str, Any]:
    """Return counts, and least, median and greatest area, solidity and vertex count."""

    def spread(values: list[float], digits: int) -> list[float]:
        if not values:
            return []
        return [round(v, digits) for v in (min(values), statistics.median(values), max(values))]

    return {
        "count": len(contours),
        "tiers": {t: sum(c.tier == t for c in contours) for t in TIERS},
        "thick": sum(bool(c.provenance.get("thick")) for c in contours),
        "holed": sum(bool(c.holes) for c in contours),
        "area_um2": spread([c.outer_area_um2 for c in contours], 1),
        "solidity": spread([c.solidity for c in contours], 4),
        "vertices": spread([float(c.n_vertices) for c in contours], 1),
    }
