//! The profiles that the router chooses between, as the settings name them.

use super::Scene;
use crate::args::{AgentArgs, ModelArgs};
use crate::config::Config;
use crate::error::CliError;
use flint_agent::Setup;
use flint_agent::config::Source;
use flint_agent::provider::Provider;
use flint_agent::route::To;
use flint_agent::router::{Choices, Mode, Side};
use flint_agent::settings::OF_MODEL;
use flint_agent::tasks::Step;

/// What there is to choose from, and what a person should know about it.
#[derive(Default)]
pub struct Known {
    choices: Option<Choices>,
    notices: Vec<String>,
}

/// Who names a profile or a model for this run has chosen: then there is no router. Steps with tags need their models all
/// the same.
pub fn choices(
    config: &Config,
    model: &ModelArgs,
    args: &AgentArgs,
    scene: &Scene,
    steps: &[Step],
) -> Result<Known, CliError> {
    let settings = &scene.loaded.config;
    let set = settings.text("router.mode");
    let named = settings.place("model").is_some_and(|place| place.source >= Source::Environment);
    let mode = if args.profile.is_some() || named { Mode::Off } else { Mode::parse(set) };
    let mut known = Known::default();
    let mut side = |to: To, key: &str| {
        let tagged = steps.iter().find(|step| step.to == Some(to) && !step.done);
        let why = match (mode, tagged) {
            (Mode::Off, None) => return Ok(None),
            (_, Some(step)) => format!("line {} has a tag for the {to} model", step.line),
            (_, None) => format!("router.mode is {:?}", set.unwrap_or_default()),
        };
        let name = settings.text(key).ok_or_else(|| missing(&why, key))?;
        known.side(config, model, args, scene, name).map(Some)
    };
    let (realtime, deep) = (side(To::Realtime, "router.realtime")?, side(To::Deep, "router.deep")?);
    if realtime.is_none() && deep.is_none() {
        return Ok(known);
    }
    if let (Some(one), Some(other)) = (&realtime, &deep)
        && (&one.settings.model, &one.provider.base_url) == (&other.settings.model, &other.provider.base_url)
    {
        let (names, model) = ((&one.profile, &other.profile), &one.settings.model);
        known.notices.push(format!("there is no choice: {:?} and {:?} both ask {model:?}", names.0, names.1));
    }
    known.choices = Some(Choices { mode, realtime, deep });
    Ok(known)
}

/// Who is asked first: with a router that goes by itself the real-time model, else whom the settings name.
pub fn provider(
    config: &Config,
    model: &ModelArgs,
    scene: &mut Scene,
    known: &Known,
) -> Result<Provider, CliError> {
    match &known.choices {
        Some(Choices { mode: Mode::Auto, realtime: Some(side), .. }) => {
            scene.settings.take_model(&side.settings);
            Ok(side.provider.clone())
        }
        Some(_) | None => scene.provider(config, model),
    }
}

/// A session with them.
pub fn with(known: Known, mut setup: Setup) -> Setup {
    setup.notices.extend(known.notices);
    setup.choices = known.choices;
    setup
}

fn missing(why: &str, key: &str) -> CliError {
    CliError::Settings(format!(
        "{why}, and {key} names no profile: write [router] {} = \"NAME\" and the table [profiles.NAME] in config.toml",
        key.trim_start_matches("router.")
    ))
}

impl Known {
    /// The model of a profile. What else the profile says does not count, and is told.
    fn side(
        &mut self,
        config: &Config,
        model: &ModelArgs,
        args: &AgentArgs,
        scene: &Scene,
        profile: &str,
    ) -> Result<Side, CliError> {
        let args = AgentArgs { profile: Some(profile.to_owned()), ..args.clone() };
        let mut own = Scene::read(config, &ModelArgs { model: None, ..model.clone() }, &args)?;
        let news = own.loaded.warnings.iter().filter(|warning| !scene.loaded.warnings.contains(warning));
        self.notices.extend(news.map(ToString::to_string));
        for (key, place) in own.loaded.config.of_source(Source::Profile) {
            let counts = OF_MODEL.contains(&key) || key.starts_with("model_providers.");
            if !counts {
                self.notices.push(format!(
                    "{place}: `{}` does not count when the router takes this profile: a model is taken, and no right",
                    key.escape_debug()
                ));
            }
        }
        let provider = own.provider(config, model)?;
        Ok(Side { profile: profile.to_owned(), settings: own.settings, provider })
    }
}
