"""Packaging. Why each dependency is there stands beside it; versions are ranges that were seen to work together."""

from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).parent

#: What the state server, the log tools, the coordinator and the launcher need. None of it needs MXNet.
BASE = [
    "numpy>=1.23,<2",  # MXNet 1.9.1 was built against NumPy 1; the wire protocol and the rules are NumPy too
    "django>=5.1,<6",  # the state server's web framework
    "uvicorn>=0.30,<1",  # the web server of python -m esync.state_server: one process, TLS …
    "httptools>=0.6,<1",  # … its parser of requests, in C
    "uvloop>=0.19,<1",  # … its event loop, in C: halves the time of an answer
    "matplotlib>=3.7,<4",  # the figures
    "pydantic>=2.6,<3",  # checks cluster descriptions and names the field that is wrong
    "pyyaml>=6,<7",  # reads cluster descriptions
    "pyzmq>=25,<28",  # the scheduler speaks ps-lite's protocol, which runs over ZeroMQ
    "simpy>=4.1,<5",  # events of the simulation
    "greenlet>=3,<4",  # lets ordinary blocking code run in the simulation's virtual time
    "numba>=0.59,<0.63",  # compiles the inner loops of sparse exchanges, which NumPy can only do in several passes
    "rich>=13,<16",  # progress bars and the launcher's live view
]

#: Beside MXNet: gluoncv holds the networks.
GLUON = [
    "gluoncv>=0.10.5,<0.11",
    # MXNet imports distutils, which Python has dropped; setuptools brings it back.
    'setuptools>=65,<90; python_version >= "3.12"',
]

#: Collectives other than the parameter server. The wheel of MPICH brings mpiexec.
MPI = ["mpi4py>=4,<5", "mpich>=4,<6"]

#: MXNet's builds share one import name, so exactly one of them is chosen by an extra.
EXTRAS = {
    "cpu": ["mxnet==1.9.1", *GLUON],
    "cu101": ["mxnet-cu101==1.9.1", *GLUON],
    "cu112": ["mxnet-cu112==1.9.1", *GLUON],
    "cu117": ["mxnet-cu117==1.9.1", *GLUON],
    "mpi": MPI,
    "postgres": [
        "dj-database-url>=2.1,<4",  # reads DATABASE_URL, where the history is not to be a SQLite file
        "psycopg[binary]>=3.1,<4",  # Django's way to PostgreSQL
    ],
    "onnx": ["onnx>=1.17,<1.19"],  # the final model as ONNX; MXNet's exporter uses a module that 1.19 has dropped
    "dev": [
        *MPI,  # 15 MB; without it the tests of the collectives over a real MPI are skipped
        "onnx>=1.17,<1.19",  # as above
        "onnxruntime>=1.17,<2",  # does what was exported compute the same?
        "pytest>=8,<10",  # the test runner
        "pytest-timeout>=2.3,<3",  # no test may hang the suite
        "pytest-xdist>=3.5,<4",  # the suite on two cores at a time
        "hypothesis>=6.100,<7",  # properties of partitions, rules and the coordinator
        "schemathesis>=4,<5",  # makes requests out of the state server's own description
        "dj-database-url>=2.1,<4",  # the history on a real PostgreSQL
        "psycopg[binary]>=3.1,<4",
        "playwright>=1.48,<2",  # drives the system's Chromium, which has to be there, through the dashboard
        "ruff>=0.6,<1",  # style and lint
        "mypy>=1.11,<3",  # types
    ],
}

setup(
    name="esync",
    version="0.1.0",
    description="Gluon training on clusters of unequal devices: ESync and the methods it is compared with, on MXNet.",
    long_description=(HERE / "README.md").read_text(encoding="utf-8") if (HERE / "README.md").exists() else "",
    long_description_content_type="text/markdown",
    python_requires=">=3.10,<3.14",
    packages=find_packages(
        include=["esync", "esync.*", "SimpleStateServer", "SimpleStateServer.*", "logs_tools", "logs_tools.*"]
    ),
    package_data={
        "esync.state_server": ["dashboard/*", "dashboard/uplot/*"],  # the dashboard's files
        "esync": ["py.typed"],  # tells type checkers that this package's hints are for its users, too
    },
    install_requires=BASE,
    extras_require=EXTRAS,
)
