"""What a model folder on this node holds."""

import json
import os

from .errors import HelperError

_JSON_CAP = 16 * 1024 * 1024


def read_model(session, call):
    """The verb: files, config.json and the index's total size of a folder.

    Raises:
        HelperError: PATH_MISSING, NOT_A_FOLDER, PERMISSION.
    """
    path = os.path.expanduser(str(call.args.get("path") or ""))
    if not os.path.isabs(path):
        raise HelperError("BAD_REQUEST", "%r is not an absolute path." % path)
    files = _files(path)
    config, problem = _object(os.path.join(path, "config.json"))
    index, _ = _object(os.path.join(path, "model.safetensors.index.json"))
    metadata = (index or {}).get("metadata")
    total = metadata.get("total_size") if isinstance(metadata, dict) else None
    return {
        "path": path,
        "exists": True,
        "files": files,
        "config": config,
        "config_error": problem,
        "index_total_size": int(total) if isinstance(total, (int, float)) else None,
        "generation_config": os.path.isfile(os.path.join(path, "generation_config.json")),
    }


def _files(path):
    try:
        entries = sorted(os.scandir(path), key=lambda entry: entry.name)
    except FileNotFoundError as error:
        parent = _deepest(path)
        message = "%s does not exist on this node; the deepest folder that does is %s." % (path, parent)
        raise HelperError("PATH_MISSING", message, "Copy or mount the model there.", {"parent": parent}) from error
    except NotADirectoryError as error:
        raise HelperError("NOT_A_FOLDER", "%s is not a folder." % path, "Name the model's folder.") from error
    except PermissionError as error:
        message = "%s may not be read by the login user." % path
        raise HelperError("PERMISSION", message, "Give that user read access.") from error
    found = [_file(entry) for entry in entries]
    return [item for item in found if item is not None]


def _file(entry):
    """A file's facts, links followed; a dangling link has no size."""
    try:
        if entry.is_dir():
            return None
        facts = entry.stat()
        return {"name": entry.name, "size": facts.st_size, "mtime": facts.st_mtime}
    except OSError:
        return {"name": entry.name, "size": None, "mtime": None}


def _deepest(path):
    while path != "/" and not os.path.isdir(path):
        path = os.path.dirname(path)
    return path


def _object(path):
    """(object, None), (None, what is wrong) or (None, None) when there is no such file."""
    try:
        with open(path, "rb") as file:
            data = file.read(_JSON_CAP + 1)
        if len(data) > _JSON_CAP:
            return None, "larger than %d bytes" % _JSON_CAP
        # NaN and Infinity are Python's own idea of JSON; as words they reach every reader.
        value = json.loads(data.decode("utf-8"), parse_constant=str)
        return (value, None) if isinstance(value, dict) else (None, "not a JSON object")
    except FileNotFoundError:
        return None, None
    except (OSError, ValueError) as error:
        return None, str(error)
