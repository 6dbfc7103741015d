"""Every default value of the project: the one place to change them.

The command line, `esync.Trainer` and the cluster descriptions all start from here. A flag or an
argument given explicitly wins over what stands below. (`esync/config.py` is a link to this file, so
that an installed package carries it under the project's own name.)
"""

# --- training -------------------------------------------------------------------------------------
MODE = "esync"  # docs/reference/modes.md lists the others
NETWORK = "resnet18-v1"
DATASET = "fashion-mnist"
BATCH_SIZE = 64  # samples of one iteration on one device
SEED = 0
OPTIMIZER = "sgd"
MOMENTUM = 0.0
AUTOMATIC_MOMENTUM = 0.9  # with --momentum auto
# What --momentum auto multiplies learning rates by. With 1 − m = 0.1 gradients move the weights as far as without
# momentum; the mean of several workers' updates allows more (measured: results/fastest-device/README.md).
AUTOMATIC_MOMENTUM_RATE = 0.2
AUTOMATIC_MOMENTUM_SCALING = "linear"  # and --lr-scaling
PROGRAM_SCALING = "sqrt"  # that of a program with such a preset, whose optimizer may normalize gradients
WEIGHT_DECAY = 0.0  # relative to the mean gradient of a batch

# --- learning rates -------------------------------------------------------------------------------
# They multiply the gradient summed over the batch, as in the published implementation; those of
# optimizers that normalize the gradient (adam, …) are the optimizer's own.
LEARNING_RATE = 1e-3  # of a step with the gradients of a batch, in modes that send no updates
LEARNING_RATE_LOCAL = LEARNING_RATE  # of the local optimizer, in modes that send updates
LEARNING_RATE_GLOBAL = 1.0  # scales the mean model update
LR_SCALING = "none"  # linear: times the effective number of workers; sqrt: times its square root
WARMUP_SAMPLES = 0  # of all workers, in which that factor rises from 1

# --- the mean of the workers' model updates -------------------------------------------------------
WEIGHTING = "uniform"  # plain mean; samples: by samples; normalized: FedNova
OUTER_MOMENTUM = 0.0  # Nesterov's, on the mean update; 0: none
RUN_AHEAD = 1000  # local iterations that a worker may do while an exchange is under way, with --overlap
OVERLAP_STATISTICS_MOMENTUM = 0.9  # share of batch norm's statistics that an iteration keeps: Gluon's own momentum
LOCAL_ITERATIONS = 10  # of every worker in every round, where nobody asks a state server
POLYNOMIAL_DECAY = 8  # η: what decays with the rounds is (η + 1) ÷ (η + n) of its first value in round n
AUTO_EXCHANGE_SHARE = 0.2  # share of a round that an exchange may take where its interval is automatic …
AUTO_EXCHANGE_SHARE_OVERLAPPED = 0.5  # … and with overlap, where the rest of the round hides it
AUTO_MAX_ITERATIONS = 1000  # local iterations of a round that an automatic interval may ask for
AUTO_WINDOW = 5  # rounds whose times an automatic interval goes by
FEDPROX_MU = 0.01  # mode fedprox, relative to the mean gradient; the paper tries 0.001, 0.01, 0.1 and 1
DYLU_LOCAL_ITERATIONS = 50  # mode dylu: of the fastest worker between two exchanges
STALENESS = 3  # mode ssp: iterations that a worker may be ahead of the slowest
DILOCO_GLOBAL_LR = 0.7  # as its authors found best, as the next one
DILOCO_OUTER_MOMENTUM = 0.9

# --- batches by speed -----------------------------------------------------------------------------
BATCH_WINDOW = 9  # iterations of which a worker reports the median time
BATCH_GAIN = 0.1  # share by which the slowest iteration has to be longer than necessary before batches are divided anew
BATCH_WORKERS = 64  # most workers whose batches are divided anew: messages grow with their number

# --- batch norm's statistics in asynchronous modes ------------------------------------------------
STATISTICS = "mean"  # of all workers' latest; rank0: rank 0's own, as published
SPARSE_STATISTICS_EVERY = 10  # exchanges of a worker from one that carries its statistics to the next, in sparse modes

# --- delay compensation (DC-ASGD) -----------------------------------------------------------------
DCASGD_LAMBDA = 0.04  # strength of the compensation, relative to the gradient that the next one names
DCASGD_LAMBDA_ON = "mean"  # gradient of a batch, as in its paper; or sum over the batch, as published with ESync
DCASGD_ADAPTIVE = False  # divide the strength by the running root mean square of the gradient
DCASGD_MEAN_SQUARE_DECAY = 0.95  # how slowly that running mean forgets

# --- Sync-Switch ----------------------------------------------------------------------------------
SWITCH_ORDER = "10"  # of the segments: 1 is BSP, 0 is ASP
BSP_SHARE = 0.125  # of the samples that BSP uses, where no steps are given
MOMENTUM_RAMP = 0.05  # of the samples of a run, in which --switch-momentum linear or doubling brings the momentum back
SEARCH_BETA = 0.01  # accuracy that a share of BSP may cost in the search
SEARCH_REPEATS = 5  # runs of each share in the search
SEARCH_SETTINGS = 4  # shares that the search tries: 50, 25, 12.5, 6.25 % where all are accepted
ONLINE_POLICY = "elastic"  # or greedy, none: what is done about stragglers while it is synchronous
STRAGGLER_WINDOW = 10  # steps whose throughput is looked at
STRAGGLER_WINDOW_MAX = 1000  # of them: the state server keeps them for every worker
STRAGGLER_STRIDE = 5  # steps from one look to the next
STRAGGLER_RAISE_AFTER = 3  # looks in a row after which a slow worker counts as a straggler …
STRAGGLER_CLEAR_AFTER = 3  # … and no longer does when it is slow no more
STRAGGLER_SIGMAS = 1.0  # standard deviations of the workers' throughputs below their mean
STRAGGLER_FLOOR = 0.9  # share of that mean that its throughput has to be below, too
LOSS_EVERY = 10  # rounds of rank 0 from one row of loss.csv to the next

# --- sparse exchanges (DGS, gradient dropping, DGC) -----------------------------------------------
SPARSE_RATIO = 0.01  # share of each tensor's values that a worker sends
SPARSE_SECONDARY_RATIO = 0.0  # the same for what a server sends back; 0: all that has changed
SPARSE_DENSE_BELOW = 1024  # tensors with fewer values are sent whole
SPARSE_VALUES = "float32"  # or float16
SPARSE_PIECE_ELEMENTS = 64  # float32 values of the smallest size class of a message
DGS_MOMENTUM = 0.7  # of SAMomentum; less with many workers, since asynchrony adds momentum of its own
DGC_MOMENTUM = 0.7
DGC_CLIP = 0.0  # largest norm of the mean gradient of a batch; 0: no limit
DGC_WARM_UP = 0  # exchanges over which DGC's ratio falls to its final value …
DGC_WARM_UP_STAGES = 4  # … in that many steps

# --- compression of synchronous exchanges ---------------------------------------------------------
COMPRESSION = "none"  # fp16, 4bit, 2bit

# --- data -----------------------------------------------------------------------------------------
DATA_DIRS = ("data", "/usr/share/datasets")  # the first that holds a folder fashion-mnist is used
PARTITION = "uniform"  # uniform, contiguous, class, class-sorted, dirichlet:ALPHA
FETCH_TIMEOUT = 30.0  # seconds without a byte before one download is given up
FETCH_ATTEMPTS = 3  # times that each mirror is tried
FETCH_PAUSE = 1.0  # seconds before the mirrors are tried again; doubled each time
FETCH_PACKAGE_TIMEOUT = 600.0  # seconds for each step of getting the distribution's package

# --- devices --------------------------------------------------------------------------------------
USE_CPU = 0
DEFAULT_GPU_ID = 0

# --- evaluation and logs --------------------------------------------------------------------------
EVAL_DURATION = 1  # evaluate every that many rounds, on rank 0
WEIGHT_AVERAGES = ("none", "polynomial")  # what is evaluated: the newest weights, or an average
WEIGHT_AVERAGE = "none"
FOLLOW_PATIENCE = 600.0  # seconds without a new checkpoint after which python -m esync.evaluate ends
EVALUATION_RESTARTS = 3  # times that rank 0 starts its evaluating process again after it was killed
EVALUATION_STILL = 10.0  # seconds without any processor time after which that process counts as hung
EVALUATION_TIMEOUT = 3600.0  # seconds that one evaluation may take
EVALUATION_TRIAL = 15.0  # seconds for which the first round waits for an evaluation that tries whether it works
EVAL_BATCH_SIZE = 500  # images of one forward pass of the evaluation
LOG_DIR = "logs"
LOG_DISK_FULL = 600.0  # seconds that a worker goes on, or waits in the end, while a full disk does not take its logs
PREEMPTION_NEWS = 2.0  # seconds at the end of a run for a notice that other workers may have had already
LOGGER_TIMEOUT = 60.0  # seconds that a finished run waits for W&B or MLflow to take the rest
LOGGER_BACKLOG = 10_000  # rounds and evaluations that wait in memory for them
LOGGER_EVERY = 1.0  # seconds between two requests to MLflow
LOG_DISK_RETRY = 0.5  # seconds between two attempts to write them
LOG_BACKLOG = 32 * 2**20  # bytes of logs that wait in memory for a slow or full disk before training waits for it, too

# --- checkpoints ----------------------------------------------------------------------------------
CHECKPOINT_EVERY = 100  # rounds
KEEP_CHECKPOINTS = 3  # older ones are deleted
CHECKPOINTS_IN_USE = 10.0  # seconds that a worker waits for another process to let go of its checkpoint directory

# --- state server ---------------------------------------------------------------------------------
STATE_SERVER_IP = ""
STATE_SERVER_PORT = "10010"
STATE_SERVER_TIMEOUT = 5.0  # seconds before one query is given up and tried again
STATE_SERVER_PATIENCE = 120.0  # seconds of failed queries before the worker gives up
STATE_SERVER_RETRY_PAUSE = 0.05  # seconds before a failed query is tried again; doubled each time …
STATE_SERVER_RETRY_PAUSE_MAX = 2.0  # … up to this
STATE_SERVER_HOST = "127.0.0.1"  # where python -m esync.state_server listens unless told otherwise
STATE_SERVER_SWITCH_INTERVAL = 0.0001  # seconds that long requests keep the interpreter from workers' queries
STATE_SERVER_CONNECTIONS = 8192  # at the same time: every worker keeps one
STATE_SERVER_SILENCE = 30.0  # seconds without a complete header after which a connection is closed
STATE_SERVER_OTHER_FILES = 200  # file descriptors left for journals, the database and listening sockets
STATE_SERVER_THREADS = 16  # that answer requests; one of them is kept free for requests that need no database
STATE_SERVER_MAX_HEADERS = 32_768  # bytes of one request's headers
STATE_SERVER_MAX_BODY = 16_384  # bytes of one request's body
STATE_SERVER_FAREWELL = 2  # seconds that requests under way have when the server ends
JOB = "default"  # the job's name, where none is given; the published calls mean this one
JOB_FORGOTTEN = 86_400.0  # seconds without news after which a job is forgotten; its history stays
JOURNAL_BYTES = 16_777_216  # size at which a job's journal is begun anew from the state that it led to
JOURNAL_RETRY = 5.0  # seconds before a journal that could not be written is tried again
HISTORY_INTERVAL = 0.5  # seconds between two batches for the database
HISTORY_BATCH = 1000  # entries of one batch
HISTORY_QUEUE = 50_000  # entries that wait for the database; further ones are dropped and counted
HISTORY_RETRY_MAX = 10.0  # seconds between two attempts to reach a database that is gone
HISTORY_RUNS = 200  # finished runs that are kept
HISTORY_PAGE = 1000  # rows of one answer
CURVE_POINTS = 240  # of one curve of a run
CURVE_CELLS = 20_000  # points × workers that are added up for one curve
REPORT_INTERVAL = 0.5  # seconds between two reports of a worker; what it does in between is added up
REPORT_FAREWELL = 2.0  # seconds that a worker's last reports have to arrive
MAX_WORKERS = 10_000  # of one job
JOB_ALIVE = 5.0  # seconds without news of a job's workers before another training may take its name …
JOB_ALIVE_ITERATIONS = 3  # … or so many iterations (or rounds) of the slowest worker, where they take longer
SLOWEST_ITERATIONS = 1  # local iterations of the slowest worker in each round
QUERY_MODE = "blocking"  # wait for the state server's answer; delayed-ack: train on meanwhile
EPSILON: float | str = "auto"  # seconds; READY when the slowest device ends sooner than one own iteration + epsilon
EPSILON_SHARE = 0.1  # of its own iteration: the most that an automatic epsilon of a worker may be
EPSILON_PUBLISHED = 0.5  # seconds; what /init/ assumes when a published client does not send epsilon
LEASE_SHORTEST = 2 / 3  # shortest iteration of the slowest device to reckon with, as a share of its first one
LEASE_FORGETTING = 0.1  # how fast the shortest of its iterations is forgotten, per iteration
RESET_PATIENCE = 10.0  # seconds, beyond an iteration, that the slowest may take to take a new model over
CAPABILITY_SMOOTHING = 0.3  # weight of the newest iteration in the smoothed seconds per iteration
EXCHANGE_SHARE = 0.1  # of a round: the most that an exchange takes, with --slowest-iterations auto …
EXCHANGE_SHARE_OVERLAPPED = 1 / 3  # … and with --overlap, where a shorter one delays updates less
ROUND_ITERATIONS = 8  # of the fastest worker, in a round whose exchange is short; also the spread of speeds in a tier
SLOWEST_ITERATIONS_MAX = 128  # that --slowest-iterations auto chooses
NOISE_SCALE = 100.0  # gradient noise scale where none is measured, in batches; with more delay a worker is left out
AUTOMATIC_GAIN = 0.05  # share of progress for which other workers are chosen
AUTOMATIC_SPARE = 0.25  # share by which an automatic setting may be off before another one is chosen
TIER_HYSTERESIS = 0.2  # share by which a worker has to be beyond the limit of its tier before it changes it
LEAVE_OUT_HYSTERESIS = 0.5  # share by which its speed has to exceed that limit before it comes back
LEAVE_OUT_PROBE = 30.0  # seconds between two iterations by which a worker that is left out measures its speed

# --- cluster --------------------------------------------------------------------------------------
SCHEDULER_PORT = 9091
ANNOUNCE_AFTER = 10.0  # seconds of waiting before a line says for what and for whom
START_TIMEOUT = 300.0  # seconds to wait for the other processes of the cluster to appear
ROUND_TIMEOUT = 600.0  # seconds to wait for the other workers' commits in one round
NO_WORKERS_TIMEOUT = 30.0  # seconds without any worker before a parameter server ends, where replacements are expected
NO_PEERS_TIMEOUT = 2.0  # seconds without a connection to anybody before a scheduler ends
PEER_TIMEOUT = 5.0  # seconds without a connection to the scheduler or a server before a worker ends
CONNECTION_TIMEOUT = 1.0  # seconds without a connection to a worker before a server counts it as dead
LEASE = 30.0  # seconds of silence of a worker's process before --elastic goes on without it
HEARTBEAT_EVERY = 0.5  # seconds between two heartbeats of a worker; a quarter of a shorter lease
STATUS_EVERY = 2.0  # seconds between two looks of a worker, in the middle of a round, whether the run goes on
WAIT_FOR_REPLACEMENT = 0.0  # seconds that a dead worker's place stays free before the run ends, where none is promised
KEEP_ALIVE = (5, 2, 5)  # TCP keep-alive: seconds of silence before the first probe, seconds between probes, probes
BUCKET_ELEMENTS = 999_992  # float32 values in one push or pull; just under 4 MB
RULE_BLOCK = 65_536  # values that a rule works on at a time on a CPU: they stay in the cache

# --- collectives ----------------------------------------------------------------------------------
COLLECTIVE = "ps"  # ps, ring, butterfly, binary-blocks, mpi, auto
COLLECTIVE_BUCKET = 524_288  # bytes of the part that each rank sums up of a bucket: few enough for the caches …
COLLECTIVE_CROWDED_BUCKET = 2_097_152  # … and where ranks share cores and wait for them in every step
COLLECTIVE_BUCKET_MAX = 33_554_432  # bytes of the largest bucket
COLLECTIVE_MESSAGE = 1_048_576  # bytes of the largest message of MPI
COLLECTIVE_WINDOW = 4  # buckets on their way at the same time
COLLECTIVE_SPIN = 0.0005  # seconds since something arrived during which the next look comes at once
COLLECTIVE_FIRST_PAUSE = 0.0001  # seconds of the first pause after that; each is half as long again as the last …
COLLECTIVE_PAUSE = 0.001  # … up to this while values are on their way …
COLLECTIVE_WAIT_PAUSE = 0.01  # … and up to this while other workers compute
COLLECTIVE_TRIALS = 3  # exchanges of each trial, of which the fastest counts
COLLECTIVE_SMOOTHING = 0.2  # weight of the newest exchange in the smoothed time
COLLECTIVE_WORSE = 1.5  # times its measured time that the chosen one may come to take before all are tried again
COLLECTIVE_FAREWELL = 3.0  # seconds that the others have to take leave when the run has failed

# --- launcher -------------------------------------------------------------------------------------
LAUNCH_LINE_EVERY = 5.0  # seconds between two lines of progress where the output is no terminal
LAUNCH_PROGRAM_SILENCE = 60.0  # seconds without output before a line says so of programs that report no rounds
LAUNCH_RESTARTS = 3  # replacements of one worker (or starts of a state server) before the job counts as failed
LAUNCH_WAIT_FOR_HOST = 300.0  # seconds before processes of a host that does not answer are given up; < ROUND_TIMEOUT
LAUNCH_RETRY = (1.0, 15.0)  # seconds before a host that does not answer is tried again: at first, at most
LAUNCH_LINGER = 2.0  # seconds that the others have to end by themselves after one process has failed
LAUNCH_GRACE = 4.0  # seconds between asking the processes to end and ending them by force
LAUNCH_FAREWELL = 20.0  # seconds that servers and scheduler have to end after the last worker
LAUNCH_CHECK = 30.0  # seconds that another machine has to answer before the job begins
LAUNCH_BEAT = 5.0  # seconds between two signs of life to processes on other machines …
LAUNCH_LEASE = 25.0  # … and seconds without one after which they end: before launch gives the connection up
LAUNCH_COPY = 20.0  # seconds without news before copying the logs of other machines is given up
SSH_CONNECT_TIMEOUT = 10.0  # seconds to reach another machine
SSH_ARRIVING = 6  # connections to one machine that may be under way at the same time
SSH_ALIVE_INTERVAL = 5.0  # seconds between two probes of a connection …
SSH_ALIVE_COUNT = 6  # … and how many of them may stay without an answer

# --- simulation -----------------------------------------------------------------------------------
SIMULATE_GOODPUT = 0.94  # share of a link's bandwidth that is left for TCP's payload: 1448 of 1538 bytes on Ethernet
SIMULATE_MESSAGE_BYTES = 120  # that ps-lite adds to every bucket
SIMULATE_MESSAGE_TIME = 1e-4  # seconds of a parameter server for every message
SIMULATE_MPI_MESSAGE_TIME = 2e-5  # seconds of a worker for every message of a collective …
SIMULATE_MPI_MESSAGE_BYTES = 64  # … and what MPI adds to it
SIMULATE_MPI_EAGER = 16_384  # bytes of the largest message that MPI copies, so that its sender need not wait
SIMULATE_ADDING = 2e-10  # seconds of a worker per byte that a collective adds up
SIMULATE_CALL_BYTES = (240, 170)  # of a worker's call to the state server, and of its answer
SIMULATE_ANSWER_TIME = 2e-4  # seconds of the state server for every call
SIMULATE_MEMORY_BANDWIDTH = 1e10  # bytes of a payload that a worker copies or adds up in a second
SIMULATE_EVALUATION_TIME = 10.0  # virtual seconds that evaluating a model once takes
SIMULATE_TIMES_TO = (0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.92)  # accuracies whose time of reaching the result tells
SIMULATE_LOGGED_WORKERS = 100  # clusters of more than that many write no round files unless told to

# --- planning -------------------------------------------------------------------------------------
PLAN_GAIN = 0.2  # a class that deviates more from SGD is recommended where it gains more than that share
#: Flag → values that are tried beside its default, in every mode that has the flag; collectives come on top.
PLAN_VARIATIONS = {
    "compression": ("fp16", "4bit", "2bit"),
    "overlap": (True,),
    "local_iterations": (50,),
    "slowest_iterations": (2,),
    "query_mode": ("delayed-ack",),
    "staleness": (10,),
}
PLAN_GROUPS = 2  # groups of fastest devices on which local averaging is tried, too
PLAN_FASTEST = 6  # groups of fastest devices that are tried, at most; a group ends where the next device takes …
PLAN_SLOWER = 1.05  # … at least that many times as long for an iteration
PLAN_ROUNDS = 10  # of the first simulation of a candidate, or fewer, where there are many workers, …
PLAN_COMMITS = 600  # … so that a commit of each worker in each round makes no more than that; doubled …
PLAN_COLLECTIVE_WORKERS = 32  # collectives of more workers are not tried: their messages grow with the square
PLAN_STEADY = 0.01  # … until samples/s change by less than that share, …
PLAN_EVENTS = 40_000  # … or a simulation has had more events than that
PLAN_EQUAL = 0.04  # methods of a class whose samples/s differ by less than that share count as equally fast; …
PLAN_PRESET = 0.1  # … a preset, which adapts when speeds change, up to this share: the error of a plan
PLAN_COLLECTIVE = 1.5  # speeds of collectives have been predicted up to that many times too high
PLAN_BUSY = 0.9  # share of the devices' speed from which on nothing else is a bottleneck
PLAN_SHOWN = 3  # methods of each class that the table shows, beside those without further flags

# --- measuring a cluster --------------------------------------------------------------------------
MEASURE_DEVICES = 6.0  # seconds for which the iterations of all devices are measured, at least …
MEASURE_DEVICES_MAX = 20.0  # … and at most, where a device takes long for one
MEASURE_START = 120.0  # seconds that a device has to do its first iterations, or a server to be measured
MEASURE_ANNOUNCE = 5.0  # seconds between two lines that say what is being measured
MEASURE_LINK = 0.6  # seconds for which bytes are sent from one host to another …
MEASURE_LINK_MAX = 3.0  # … and at most, where they are few; …
MEASURE_LINK_SHARED = 2.0  # seconds for which all workers' hosts exchange bytes with a server's, each way; …
MEASURE_LINK_WARM_UP = 0.2  # … the first seconds do not count: TCP begins slowly, and queues are empty
MEASURE_ROUND_TRIPS = 30  # questions by which the latency between two hosts is measured
MEASURE_TOLERANCE = 0.1  # relative difference below which two hosts count as equal

# --- summaries and figures ------------------------------------------------------------------------
TARGET_ACCURACY = 0.8  # test accuracy whose time of reaching makes the speedup
OVERRUN_LIMIT = 0.01  # share of padded iterations that may take longer than their step time before a run is invalid
PUBLISHED_MODEL_BYTES = {"resnet18-v1": 42_600_000}  # for logs without bytes, as published
SKIPPED_SHOWN = 20  # skipped files named on the terminal; all of them are in the --json report
