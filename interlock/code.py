"""The one table of stable error codes: what each means, why it comes, and what to do about it.

Every face takes titles and hints from here, and the reference page is written from it.
A code never changes its meaning and is never used for two things.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class ErrorCode:
    """One code. `retryable` means that the same call, unchanged, may succeed later."""

    code: str
    title: str
    cause: str
    remedy: str
    retryable: bool = False


@dataclass(frozen=True, slots=True)
class CodeGroup:
    """Codes that belong to one subject, in the order of the reference page."""

    title: str
    codes: tuple[ErrorCode, ...]


class UnknownCodeError(LookupError):
    """A code that is not in the table was asked for: a fault of the program, never of its user."""

    def __init__(self, name: str) -> None:
        super().__init__(f"no such error code: {name}")
        self.name = name


_JSON = CodeGroup(
    "JSON",
    (
        ErrorCode(
            "JSON_SYNTAX",
            "Not JSON",
            "The text does not follow the grammar of JSON.",
            "Send JSON as RFC 8259 describes it; the offset says where reading stopped.",
        ),
        ErrorCode(
            "JSON_ENCODING",
            "Not UTF-8",
            "The bytes are not UTF-8, or begin with a byte order mark.",
            "Encode the text as UTF-8 without a byte order mark.",
        ),
        ErrorCode(
            "JSON_DUPLICATE_KEY",
            "Key twice in one object",
            "An object names the same key twice, perhaps once in escaped form; readers would disagree.",
            "Name every key once.",
        ),
        ErrorCode(
            "JSON_NOT_FINITE",
            "NaN or Infinity",
            "NaN, Infinity and -Infinity are not JSON.",
            "Send null, a string or leave the key out.",
        ),
        ErrorCode(
            "JSON_NUMBER_RANGE",
            "Number cannot be kept exactly",
            "An integer beyond ±(2^53 - 1), or a number too large for a double.",
            "Send such a number as a string.",
        ),
        ErrorCode(
            "JSON_DEPTH",
            "Nested too deeply",
            "Arrays and objects are nested deeper than the limit.",
            "Send a flatter value.",
        ),
        ErrorCode(
            "JSON_SIZE",
            "Too large",
            "The text is larger than the limit.",
            "Send less, or put the content into a file of the workspace and name it.",
        ),
        ErrorCode(
            "JSON_UNICODE",
            "Lone surrogate",
            "A string or key holds half of a surrogate pair, which no encoding can carry.",
            "Send whole characters; send bytes as base64.",
        ),
        ErrorCode(
            "JSON_NUL",
            "NUL character",
            "A string or key holds U+0000, which stores and programs cut or refuse.",
            "Remove the character; send bytes as base64.",
        ),
        ErrorCode(
            "JSON_TYPE",
            "Value has no JSON form",
            "A value is of a type that JSON does not have, or a key is not a string.",
            "Use objects, arrays, strings, numbers, true, false and null only.",
        ),
    ),
)

_PROPOSAL = CodeGroup(
    "Proposals",
    (
        ErrorCode(
            "NOT_AN_ENVELOPE",
            "Not a proposal",
            "What came on the queue is no envelope that can be read; it was kept as a dead letter.",
            "Send the format published under docs/wire.",
        ),
        ErrorCode(
            "POISON",
            "Item ended its reader",
            "The queue item was taken three times and never finished; it was set aside unread.",
            "Look at the dead letter's digest and size, and correct the producer.",
        ),
        ErrorCode(
            "UNKNOWN_FIELD",
            "Unknown field",
            "The proposal has a field that the format does not have.",
            "Remove the field or correct its name.",
        ),
        ErrorCode(
            "FIELD_MISSING",
            "Field missing",
            "The proposal lacks a field that the format requires.",
            "Add the field.",
        ),
        ErrorCode(
            "FIELD_INVALID",
            "Field not valid",
            "A field has the wrong type, form or length.",
            "Correct the field; the message names it.",
        ),
        ErrorCode(
            "OPTION_UNSUPPORTED",
            "Option not supported",
            "An option that would be ignored was set: eta, countdown, expires, link, chain or group.",
            "Leave the option out, and use the proposal's own fields instead.",
        ),
        ErrorCode(
            "SIGNATURE_INVALID",
            "Signature not valid",
            "The signature does not fit the content or the key.",
            "Sign the exact canonical bytes with the client's current key.",
        ),
        ErrorCode(
            "CLIENT_UNKNOWN",
            "Client not known",
            "No client is registered under the key or queue that the proposal came with.",
            "Register the client, or send with a registered one.",
        ),
        ErrorCode(
            "ID_NOT_UUID7",
            "Id is no UUIDv7",
            "Invocation ids are UUIDs of version 7 in lower-case text.",
            "Make the id with the client library or any UUIDv7 generator.",
        ),
        ErrorCode(
            "ID_TIME_OUT_OF_RANGE",
            "Id from another time",
            "The time within the id is more than 24 hours from the ledger's clock.",
            "Correct the clock of the producer and make a new id.",
        ),
        ErrorCode(
            "ID_CONFLICT",
            "Id already used",
            "The id already belongs to a proposal with other content or of another client.",
            "Make a new id for a new proposal.",
        ),
        ErrorCode(
            "KEY_REUSED",
            "Idempotency key used with other content",
            "The key was used before with other arguments, tool, subject or session.",
            "Use a new key, or send exactly what was sent first.",
        ),
        ErrorCode(
            "ACCEPT_UNTIL_PASSED",
            "Came too late",
            "The proposal reached the intake after the moment until which it might be accepted.",
            "Propose again with a new id if the action is still wanted.",
        ),
        ErrorCode(
            "NOT_ACCEPTED",
            "Not accepted",
            "The proposal was refused, or was withdrawn before it was accepted.",
            "Read the reason; nothing ran and nothing will.",
        ),
        ErrorCode(
            "NOT_JUDGED",
            "Judging failed",
            "A fault of this program kept the proposal from being judged; nothing was accepted.",
            "Report it with the log lines around it; propose again with a new id.",
        ),
        ErrorCode(
            "ACCEPTANCE_UNKNOWN",
            "Not known whether accepted",
            "The deadline passed without an answer; the proposal may yet be accepted.",
            "Ask for the same id later, or submit it again under the same id.",
            retryable=True,
        ),
        ErrorCode(
            "SUBJECT_MISSING",
            "No subject",
            "The proposal does not say on whose behalf it acts.",
            "Name the subject.",
        ),
        ErrorCode(
            "ROUTE_NOT_ALLOWED",
            "Tool not on the route",
            "The route that the proposal names does not lead to this tool.",
            "Use a route that lists the tool.",
        ),
    ),
)

_ARGUMENT = CodeGroup(
    "Tools and arguments",
    (
        ErrorCode(
            "UNKNOWN_TOOL",
            "Unknown tool",
            "No registered tool has this name.",
            "List the tools with `interlock tools list`.",
        ),
        ErrorCode(
            "ARGUMENTS_NOT_OBJECT",
            "Arguments are no object",
            "The arguments are JSON, but not a JSON object.",
            "Send an object with one key for each parameter.",
        ),
        ErrorCode(
            "ARGUMENTS_TOO_LARGE",
            "Arguments too large",
            "The canonical arguments are larger than the limit.",
            "Send less, or put the content into a file of the workspace and name it.",
        ),
        ErrorCode(
            "SCHEMA_INVALID",
            "Arguments do not fit the schema",
            "The arguments break the parameter schema of the tool.",
            "Correct what the pointers name; `interlock tools show` prints the schema.",
        ),
        ErrorCode(
            "PATH_INVALID",
            "Path not valid",
            "A path is absolute, leaves the workspace, or has a form that is not allowed.",
            "Give a path relative to the workspace, without `..`.",
        ),
        ErrorCode(
            "PATH_NOT_ALLOWED",
            "Path not on the list",
            "The contract of the tool or the session does not list this path.",
            "Use a listed path, or have the list changed.",
        ),
        ErrorCode(
            "HOST_NOT_ALLOWED",
            "Host not on the list",
            "The host and port are not on the configured list.",
            "Use a listed host, or let an operator add it to INTERLOCK_EGRESS and start again.",
        ),
        ErrorCode(
            "ADDRESS_NOT_PUBLIC",
            "Address is not public",
            "The name resolves to a private, local or reserved address that has no entry of its own.",
            "Use a public host, or ask an operator to list the private address.",
        ),
    ),
)

_REGISTRATION = CodeGroup(
    "Registration of tools",
    (
        ErrorCode(
            "CATALOGUE_INVALID",
            "Catalogue not valid",
            "The file is no catalogue that can be read, or its name is not allowed.",
            "Compare it with the reference of contracts; `interlock tools check` names the place.",
        ),
        ErrorCode(
            "CONTRACT_INVALID",
            "Contract not valid",
            "A contract lacks something, or says two things that exclude each other.",
            "Correct the field that the message names.",
        ),
        ErrorCode(
            "DUPLICATE_TOOL",
            "Name twice",
            "Two tools of one catalogue have the same name.",
            "Rename one of them.",
        ),
        ErrorCode(
            "TIER_BELOW_FLOOR",
            "Tier below its floor",
            "The declared tier is lower than the capabilities or the risk of the tool demand.",
            "Declare at least the tier that the message names.",
        ),
        ErrorCode(
            "SANDBOX_ABOVE_TIER",
            "Sandbox needs above the tier",
            "The tool asks its sandbox for more than its tier may have.",
            "Ask for less, or declare the higher tier.",
        ),
        ErrorCode(
            "SCHEMA_BAD",
            "Schema not valid",
            "The schema is not valid JSON Schema 2020-12, or refers to something that is not in it.",
            "Correct the place that the pointer names.",
        ),
        ErrorCode(
            "SCHEMA_DIALECT",
            "Other schema dialect",
            "`$schema` names another dialect than JSON Schema 2020-12.",
            "Translate the schema to 2020-12 and name that, or leave `$schema` out.",
        ),
        ErrorCode(
            "SCHEMA_NOT_OBJECT",
            "Schema is not of an object",
            "The schema at the top does not say `type: object`.",
            "Say `type: object` at the top and put the values into properties.",
        ),
        ErrorCode(
            "SCHEMA_REMOTE_REF",
            "Reference outside the document",
            "A reference points to another document or a file; none is ever fetched.",
            "Copy what is referred to into `$defs`.",
        ),
        ErrorCode(
            "SCHEMA_SELF_REFERENCE",
            "Schema refers to itself only",
            "Following references from this place leads back to it before anything is checked.",
            "Put the reference under a property or an item, or remove it.",
        ),
        ErrorCode(
            "SCHEMA_UNBOUNDED",
            "Schema too large",
            "The schema is too large, too deep, or has too many parts to be checked in bounded time.",
            "Make it smaller; use `$ref` instead of repeating.",
        ),
        ErrorCode(
            "SCHEMA_PATTERN",
            "Pattern not supported",
            "A regular expression is wrong, too large, or needs look-around or back-references.",
            "Write the pattern without them; matching takes linear time.",
        ),
        ErrorCode(
            "SENSITIVE_MISPLACED",
            "Mark cannot be kept",
            "A schema says `sensitive` where it marks no value of a parameter, so nothing would be sealed.",
            "Put `sensitive: true` into the schema of the parameter itself.",
        ),
        ErrorCode(
            "OUTPUT_SCHEMA_FREE_STRING",
            "Output is one free string",
            "The output schema requires nothing but a string, so results could not be checked.",
            "Describe the result by fields with types.",
        ),
    ),
)

_MODE = CodeGroup(
    "Modes, approvals and permits",
    (
        ErrorCode(
            "MODE_ESCALATION",
            "Higher mode than the session's",
            "The proposal names a mode above that of its session.",
            "Leave the mode out or lower it; only who may open sessions sets their mode.",
        ),
        ErrorCode(
            "APPROVAL_REQUIRED",
            "Approval required",
            "Policy grants less than this tool's tier needs by itself.",
            "Wait, or ask an approver; `interlock inbox` lists what is parked.",
            retryable=True,
        ),
        ErrorCode(
            "TIER_ABOVE_MODE",
            "Tier above the mode",
            "The tool's tier is above what the session's mode grants.",
            "Ask an approver, or use a tool of a lower tier.",
        ),
        ErrorCode(
            "APPROVAL_DENIED",
            "Denied",
            "An approver denied this action.",
            "Read the reason; the same action will not be asked again.",
        ),
        ErrorCode(
            "APPROVAL_EXPIRED",
            "Approval not given in time",
            "Nobody answered before the request expired; silence denies.",
            "Propose again if the action is still wanted.",
        ),
        ErrorCode(
            "DENIED_BEFORE",
            "Denied before",
            "The same action was denied earlier, and a denial is final.",
            "Propose something else, or speak with the approver.",
        ),
        ErrorCode(
            "APPROVER_IS_REQUESTER",
            "Own request",
            "The approver is the requester, or the subject that the action is for.",
            "Let another approver decide.",
        ),
        ErrorCode(
            "APPROVER_UNKNOWN",
            "Approver not known",
            "No approver is registered under this name or key.",
            "Register the approver's key.",
        ),
        ErrorCode(
            "APPROVER_NOT_ENTITLED",
            "Approver may not decide this",
            "The approver's rights do not cover this tier or tool.",
            "Let an approver with the right decide.",
        ),
        ErrorCode(
            "PRINCIPAL_EXISTS",
            "Registered already",
            "A client, approver, bot or operator of this name is registered.",
            "Choose another name, or say --replace to give it a new key and new rights.",
        ),
        ErrorCode(
            "VOTE_LATE",
            "Vote came late",
            "The request was already decided, ended or expired.",
            "Nothing to do; the standing decision holds.",
        ),
        ErrorCode(
            "VOTE_DIGEST_MISMATCH",
            "Vote is for something else",
            "The vote signs another digest than that of the parked request.",
            "Load the request again and decide on what it shows now.",
        ),
        ErrorCode(
            "VOTE_CHANGED",
            "Already voted",
            "The approver already gave the opposite answer, and a vote is final.",
            "Nothing to do; the first vote holds.",
        ),
        ErrorCode(
            "NOT_PARKED",
            "Waits for no approval",
            "The invocation is not parked.",
            "Look at its state with `interlock show`.",
        ),
        ErrorCode(
            "UNRESOLVED_TWIN",
            "Same action unresolved",
            "The same action is running, or its outcome is not known yet.",
            "Wait for the other one or have it reconciled; say `repeat` if a repetition is wanted.",
            retryable=True,
        ),
        ErrorCode(
            "CAUSE_TOO_DEEP",
            "Chain of causes too long",
            "The proposal follows from too long or too broad a chain of earlier ones.",
            "Let an approver look at it, or begin a new chain.",
        ),
        ErrorCode(
            "PERMIT_MISMATCH",
            "Permit is for something else",
            "What is about to run differs from what was permitted.",
            "Propose again; an operator should look at the security event.",
        ),
        ErrorCode(
            "PERMIT_EXPIRED",
            "Permit expired",
            "The permit's validity ended before the claim.",
            "Nothing to do; a new permit is made while the approval stands.",
            retryable=True,
        ),
        ErrorCode(
            "PERMIT_USED",
            "Permit already used",
            "The permit's attempts are spent.",
            "Propose again.",
        ),
        ErrorCode(
            "PERMIT_UNVERIFIABLE",
            "Permit cannot be verified here",
            "This worker does not know the key, or its signature does not fit.",
            "Give the worker governance's current public key.",
            retryable=True,
        ),
        ErrorCode(
            "CONTROL_EPOCH_CHANGED",
            "Judged under older rules",
            "Policy, a pause, a mode or a contract changed since the permit was given.",
            "Nothing to do; governance judges again.",
            retryable=True,
        ),
        ErrorCode(
            "CONTRACT_CHANGED",
            "Contract changed",
            "The tool's contract is not the one the invocation was judged by.",
            "Propose again under the contract as it is now.",
        ),
        ErrorCode(
            "CAPABILITY_MISMATCH",
            "Wrong pool",
            "The pool does not have the capability that the permit names.",
            "Nothing to do; the right pool takes it. An operator checks the pools' names.",
            retryable=True,
        ),
    ),
)

_SESSION = CodeGroup(
    "Sessions and control",
    (
        ErrorCode(
            "SESSION_UNKNOWN",
            "Unknown session",
            "No session of this name is open for this client.",
            "Open it with `interlock sessions open`.",
        ),
        ErrorCode(
            "SESSION_EXISTS",
            "Session exists already",
            "A session of this name was opened before.",
            "Use the session as it is, or open one of another name.",
        ),
        ErrorCode(
            "SESSION_CLOSED",
            "Session closed",
            "The session was closed.",
            "Open another session.",
        ),
        ErrorCode(
            "SESSION_FULL",
            "Session full",
            "The session holds as many invocations as a session may.",
            "Continue in a successor session.",
        ),
        ErrorCode(
            "STAGE_BLOCKED",
            "Stage blocked",
            "An earlier invocation of the stage failed or its outcome is not known.",
            "Resolve the one that the message names, or use another stage.",
            retryable=True,
        ),
        ErrorCode(
            "DEADLINE_PASSED",
            "Deadline passed",
            "The invocation had not begun when its deadline came.",
            "Propose again with a later deadline.",
        ),
        ErrorCode(
            "CANCELLED",
            "Cancelled",
            "The invocation was cancelled on request.",
            "Propose again if the action is still wanted.",
        ),
        ErrorCode(
            "PAUSED",
            "Paused",
            "A pause holds this work.",
            "Wait until it is resumed.",
            retryable=True,
        ),
        ErrorCode(
            "PAUSED_DROP",
            "Paused, refusing",
            "A pause refuses this work for as long as it lives.",
            "Propose again after it is resumed.",
        ),
        ErrorCode(
            "KILLED",
            "Stopped by an operator",
            "A kill switch covers this work.",
            "Ask the operator.",
        ),
        ErrorCode(
            "RATE_LIMITED",
            "Rate limit reached",
            "More was proposed in a while than the rate allows.",
            "Wait; it is decided as soon as the rate allows.",
            retryable=True,
        ),
        ErrorCode(
            "BUDGET_EXHAUSTED",
            "Budget exhausted",
            "The session's or tenant's budget does not cover this call.",
            "Ask for a larger budget.",
        ),
        ErrorCode(
            "POLICY_REFUSED",
            "Refused by policy",
            "A policy rule refuses this action.",
            "Read the rule that the reason names.",
        ),
        ErrorCode(
            "POLICY_MISSING",
            "No policy",
            "No policy is active, or it cannot be read; nothing above T0 is allowed.",
            "An operator activates a policy.",
        ),
        ErrorCode(
            "DECISION_DEFERRED",
            "Not decided yet",
            "Something that the decision needs cannot be reached now.",
            "Wait; it is judged again by itself until the deadline.",
            retryable=True,
        ),
    ),
)

_EXECUTION = CodeGroup(
    "Execution",
    (
        ErrorCode(
            "SANDBOX_UNAVAILABLE",
            "No sandbox",
            "bubblewrap or user namespaces are not available; nothing runs without a sandbox.",
            "Install bubblewrap, allow user namespaces, and look at `interlock doctor`.",
        ),
        ErrorCode(
            "SANDBOX_SETUP_FAILED",
            "Sandbox did not start",
            "The sandbox could not be set up, so the tool did not begin.",
            "Look at `interlock doctor`; another attempt may follow by itself.",
            retryable=True,
        ),
        ErrorCode(
            "SANDBOX_VIOLATION",
            "Forbidden step",
            "The tool tried what its sandbox forbids.",
            "Declare the capability it needs, or correct the tool.",
        ),
        ErrorCode(
            "START_BY_PASSED",
            "Did not begin in time",
            "The claim was too old when the tool was about to begin, so it did not.",
            "Nothing to do; it goes back to the line.",
            retryable=True,
        ),
        ErrorCode(
            "WALL_LIMIT",
            "Ran too long",
            "The tool was ended at its wall-clock limit.",
            "Give it less to do, or a contract with a longer limit.",
        ),
        ErrorCode(
            "OUTPUT_LIMIT",
            "Too much output",
            "The tool wrote more than its limit.",
            "Make it write less, or into a file.",
        ),
        ErrorCode(
            "RESOURCE_LIMIT",
            "Resource limit reached",
            "The tool reached its limit of memory, processes, files or disk.",
            "Give it less to do, or a contract with higher limits.",
        ),
        ErrorCode(
            "OUTPUT_INVALID",
            "Output breaks its schema",
            "The tool's result does not fit its own output schema; the raw bytes are kept as evidence.",
            "Correct the tool or its output schema.",
        ),
        ErrorCode(
            "TOOL_CRASHED",
            "Tool crashed",
            "The tool ended without a result: by a signal, or by an error it did not catch.",
            "Look at the receipt; correct the tool.",
        ),
        ErrorCode(
            "TOOL_FAILED",
            "Tool reported a failure",
            "The tool ran and said that it could not do what was asked.",
            "Read the reason in the receipt.",
        ),
        ErrorCode(
            "TOOL_UNAVAILABLE",
            "Tool not in this pool",
            "The pool has no implementation of the tool at the version that was judged.",
            "Install the tool's distribution in the pool.",
            retryable=True,
        ),
        ErrorCode(
            "UPSTREAM_UNREACHABLE",
            "Other side not reached",
            "No connection to the remote side could be made, so nothing was sent.",
            "Try again later.",
            retryable=True,
        ),
        ErrorCode(
            "UPSTREAM_ERROR",
            "Other side answered with an error",
            "The remote side refused or failed.",
            "Look at the status and preview in the receipt.",
        ),
        ErrorCode(
            "LEASE_LOST",
            "Worker lost",
            "The worker that ran this stopped beating, and is taken for dead.",
            "Nothing to do if another attempt follows; else reconcile.",
            retryable=True,
        ),
        ErrorCode(
            "ATTEMPTS_EXHAUSTED",
            "Attempts spent",
            "Every attempt that the contract allows was made and none ended well.",
            "Look at the attempts with `interlock show`, and propose again.",
        ),
        ErrorCode(
            "OUTCOME_UNKNOWN",
            "Outcome not known",
            "The effect may have happened; it is never sent again by itself.",
            "Find out on the other side, then say it: `interlock reconcile resolve ID --help`.",
        ),
        ErrorCode(
            "NOT_UNRESOLVED",
            "Outcome is not unknown",
            "Only an invocation whose outcome is unknown can be resolved; what is final never changes.",
            "Look at its state with `interlock show`; `interlock reconcile list` says what is unresolved.",
        ),
        ErrorCode(
            "CLAIM_MAY_LIVE",
            "May still begin",
            "Nobody can say yet that it did not happen: the process that claimed it may still begin it.",
            "Stop that process, or wait until its claim is over, and resolve it then.",
            retryable=True,
        ),
        ErrorCode(
            "CLAIM_LOST",
            "Claimed by another",
            "Another worker claimed this, or the claim no longer stands.",
            "Nothing to do.",
        ),
        ErrorCode(
            "POOL_STOPPING",
            "Pool is stopping",
            "The pool was told to stop before the tool began.",
            "Nothing to do; it goes back to the line.",
            retryable=True,
        ),
    ),
)

_SYSTEM = CodeGroup(
    "Ledger, broker and installation",
    (
        ErrorCode(
            "LEDGER_UNAVAILABLE",
            "Ledger not reachable",
            "The ledger cannot be reached; nothing is accepted and nothing starts.",
            "Try again; an operator looks at the store.",
            retryable=True,
        ),
        ErrorCode(
            "LEDGER_FENCED",
            "Ledger fenced",
            "The ledger is behind what the stream or an anchor knows, so it only reads.",
            "An operator recovers it; nothing may be written before.",
        ),
        ErrorCode(
            "LEDGER_IO_ERROR",
            "Ledger closed after an I/O error",
            "The disk answered with an error; what was written cannot be trusted until it is read again.",
            "Check the disk, then restart.",
        ),
        ErrorCode(
            "COMMIT_UNKNOWN",
            "Commit without an answer",
            "The ledger was asked to commit and what came of it is not known.",
            "Read it again; act on nothing that is not found there.",
        ),
        ErrorCode(
            "LEDGER_FORMAT",
            "Ledger of another version",
            "The ledger's format is not one this program can write.",
            "`interlock migrate` moves an older one forward; a newer one needs the newer program.",
        ),
        ErrorCode(
            "VERSION_CONFLICT",
            "Someone else wrote first",
            "The stream moved on since it was read.",
            "Read it again and judge anew.",
            retryable=True,
        ),
        ErrorCode(
            "ILLEGAL_MOVE",
            "Move not allowed",
            "An event does not fit the state it met, by the table of legal moves.",
            "Report it; `interlock verify` says whether the ledger is whole.",
        ),
        ErrorCode(
            "EVENT_UNKNOWN",
            "Unknown event",
            "A stored event has a type or version that this program does not know.",
            "Use a program at least as new as the one that wrote it.",
        ),
        ErrorCode(
            "EVENT_INVALID",
            "Event not readable",
            "A stored event does not have the shape of its type.",
            "Run `interlock verify`.",
        ),
        ErrorCode(
            "CHAIN_BROKEN",
            "Hash chain broken",
            "An event was changed, removed, inserted or moved after it was written.",
            "Keep the files as they are and find out who could write to them.",
        ),
        ErrorCode(
            "ANCHOR_MISMATCH",
            "Anchor does not fit",
            "A signed head outside the ledger does not fit the ledger.",
            "Keep the files as they are; compare with an anchor kept elsewhere.",
        ),
        ErrorCode(
            "SEALED_VALUE_UNREADABLE",
            "Sealed value cannot be opened",
            "The key of the installation does not fit the sealed value, or the value was changed.",
            "Restore the key directory that belongs to this ledger.",
        ),
        ErrorCode(
            "BROKER_UNAVAILABLE",
            "Broker not reachable",
            "The broker cannot be reached; what was accepted waits in the ledger.",
            "Try again; an operator looks at the broker.",
            retryable=True,
        ),
        ErrorCode(
            "DISK_FULL",
            "Disk full",
            "There is no space to write durably, so nothing is accepted.",
            "Free space; work continues by itself.",
            retryable=True,
        ),
        ErrorCode(
            "ALREADY_RUNNING",
            "Already running",
            "Another system holds this data directory.",
            "Use the running one, stop it, or choose another directory with --data.",
        ),
        ErrorCode(
            "NOT_RUNNING",
            "Not running",
            "No system runs on this data directory.",
            "Start it with `interlock up`.",
            retryable=True,
        ),
        ErrorCode(
            "NOT_READY",
            "Not ready",
            "The system did not become ready in time.",
            "Look at the logs in the data directory, and at `interlock doctor`.",
            retryable=True,
        ),
        ErrorCode(
            "DATA_UNREACHABLE",
            "Folder not reachable",
            "The unprivileged account that the system runs as cannot reach the folder.",
            "Choose another directory with --data, or open the folder that the message names.",
        ),
        ErrorCode(
            "DATA_ON_NETWORK_FS",
            "Network file system",
            "The data directory lies on a network file system, where locks cannot be relied on.",
            "Choose a directory on a local disk with --data.",
        ),
        ErrorCode(
            "KEY_UNAVAILABLE",
            "Key not readable",
            "A signing key is missing, unreadable, or open to others.",
            "Look at the key directory's owner and mode with `interlock doctor`.",
        ),
        ErrorCode(
            "WAIT_TIMEOUT",
            "Not finished in time",
            "The invocation had not ended when the wait was over; it goes on.",
            "Ask again for the same id.",
            retryable=True,
        ),
        ErrorCode(
            "NOT_FOUND",
            "Not found",
            "Nothing of this kind has this name or id, or it is not yours.",
            "Check the name.",
        ),
        ErrorCode(
            "FILE_UNUSABLE",
            "File or folder cannot be used",
            "What was named is of another kind, has too long a name, or lies where it cannot be made.",
            "Name another one; the message says which it is and what is wrong with it.",
        ),
        ErrorCode(
            "NOT_PERMITTED",
            "Not permitted",
            "The principal may not do this.",
            "Ask one who may.",
        ),
        ErrorCode(
            "USAGE",
            "Used in an unknown way",
            "The command or call was given something it does not know.",
            "Run the command with --help.",
        ),
        ErrorCode(
            "CONFIG_INVALID",
            "Setting not valid",
            "A setting has a value that cannot be used.",
            "Correct the setting that the message names.",
        ),
        ErrorCode(
            "INTERNAL",
            "Fault of this program",
            "Something happened that should not.",
            "Report it with the log lines around it.",
        ),
    ),
)

GROUPS: tuple[CodeGroup, ...] = (
    _JSON,
    _PROPOSAL,
    _ARGUMENT,
    _REGISTRATION,
    _MODE,
    _SESSION,
    _EXECUTION,
    _SYSTEM,
)

CODES: Mapping[str, ErrorCode] = MappingProxyType(
    {entry.code: entry for group in GROUPS for entry in group.codes}
)


def code(name: str) -> ErrorCode:
    """The entry of this name; raises `UnknownCodeError` where there is none."""
    try:
        return CODES[name]
    except KeyError:
        raise UnknownCodeError(name) from None


def reference_page() -> str:
    """The text of `docs/reference/errors.md`, written from the table."""
    parts = [_HEAD]
    for group in GROUPS:
        parts.append(f"## {group.title}\n")
        parts.extend(_entry_text(entry) for entry in group.codes)
    return "\n".join(parts)


_HEAD = """\
# Error codes

Written from `interlock/code.py`; do not edit. A code never changes its meaning.
Where an entry says *may succeed later*, the same call can be made again unchanged.
"""


def _entry_text(entry: ErrorCode) -> str:
    later = " *May succeed later.*" if entry.retryable else ""
    return f"### {entry.code}\n\n{entry.title}. {entry.cause}{later}\n\nWhat to do: {entry.remedy}\n"
