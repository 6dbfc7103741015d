"""Explain errors of ssh and of the remote shell in one sentence with a remedy."""

import shlex

from ..version import __version__
from . import ssh
from .hosts import Host

#: Output of ssh → what it means and what to do. The first match is used.
SSH_SAYS = {
    "REMOTE HOST IDENTIFICATION HAS CHANGED": "its host key differs from the one in known_hosts; if the machine was "
    "set up anew, remove the old one with ssh-keygen -R, otherwise somebody may be intercepting it",
    "Host key verification failed": "its host key is not known here; compare and accept it once with: {by_hand}",
    "Permission denied": "the login was refused; name the right user and key under hosts.{name}, and put the "
    "public key into the user's authorized_keys there",
    "Too many authentication failures": "the login was refused after too many keys; name the right one with "
    "hosts.{name}.key",
    "Connection refused": "nobody listens there for ssh; check that sshd runs, and hosts.{name}.port",
    "Could not resolve hostname": "the name {address} is not known; correct hosts.{name}.address",
    "timed out": "it does not answer; check that it is up, hosts.{name}.address, and the firewall",
    "No route to host": "it cannot be reached; check that it is up, hosts.{name}.address, and the network",
    "Network is unreachable": "it cannot be reached; check the network of this machine, and hosts.{name}.address",
    "bad permissions": "ssh refuses the key file, because others may read it; make it private with chmod 600",
}


def explain_exit(host: Host, code: int, lines: list[str]) -> str:
    """Return why a host's agent has ended, given its exit code and its last lines of output."""
    last = lines[-1] if lines else "it said nothing"
    python = f"{ssh.python_of(host)} there"
    reasons = {
        ssh.NO_FOLDER: f"there is no folder {host.entry.workdir} that it could enter; make it, or correct "
        f"hosts.{host.name}.workdir",
        ssh.NO_PYTHON: f"there is no {ssh.python_of(host)}; name the right one with hosts.{host.name}.python",
        ssh.WRONG_PYTHON: f"{python} is version {last}, but 3.10 to 3.13 is needed; name another one with "
        f"hosts.{host.name}.python",
        ssh.NO_PACKAGE: f"{python} cannot import esync ({last}); install this package for it, or let "
        f"hosts.{host.name}.workdir be its checkout",
        ssh.WRONG_VERSION: f"{python} has esync {last}, but here it is {__version__}; install the same version",
    }
    if code == ssh.NO_CONNECTION:
        text = _login_error(host, lines)
    elif code in reasons and host.entry.srun is not None:
        reason = reasons[code].partition("; ")[0]
        text = f"{reason}; start launch in a folder, and with a Python, that all nodes of the job see"
    else:
        text = reasons.get(code, f"its agent has ended with exit code {code}: {last}")
    return f"host {host.name}: {text}"


def _login_error(host: Host, lines: list[str]) -> str:
    everything = "\n".join(lines)
    by_hand = shlex.join(ssh.login(host, options={}))
    for words, meaning in SSH_SAYS.items():
        if words in everything:
            meaning = meaning.format(name=host.name, address=host.address, by_hand=by_hand)
            return f"ssh cannot log in to {host.address}: {meaning}"
    return (
        f"ssh cannot log in to {host.address}: {lines[-1] if lines else 'it does not say why'}; try by hand: {by_hand}"
    )
