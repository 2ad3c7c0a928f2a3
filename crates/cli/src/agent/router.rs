//! The profiles that the router chooses between, as the settings name them.

use super::Scene;
use crate::args::{AgentArgs, ModelArgs};
use crate::config::Config;
use crate::error::CliError;
use flint_agent::Setup;
use flint_agent::config::Source;
use flint_agent::router::{Choices, Mode, Side};
use flint_agent::settings::OF_MODEL;

/// What there is to choose from, and what a person should know about it.
#[derive(Default)]
pub struct Known {
    choices: Option<Choices>,
    notices: Vec<String>,
}

/// Who names a profile or a model for this run has chosen: then there is no router.
pub fn choices(
    config: &Config,
    model: &ModelArgs,
    args: &AgentArgs,
    scene: &Scene,
) -> Result<Known, CliError> {
    let settings = &scene.loaded.config;
    let mode = Mode::parse(settings.text("router.mode"));
    let named = settings.place("model").is_some_and(|place| place.source >= Source::Environment);
    if mode == Mode::Off || args.profile.is_some() || named {
        return Ok(Known::default());
    }
    let mut known = Known::default();
    let mut side = |key: &str| {
        let name = settings.text(key).ok_or_else(|| {
            missing(&format!("router.mode is {:?}", settings.text("router.mode").unwrap_or_default()), key)
        })?;
        known.side(config, model, args, scene, name)
    };
    let (realtime, deep) = (side("router.realtime")?, side("router.deep")?);
    if (&realtime.settings.model, &realtime.provider.base_url)
        == (&deep.settings.model, &deep.provider.base_url)
    {
        let (one, other, model) = (&realtime.profile, &deep.profile, &deep.settings.model);
        known.notices.push(format!("the router has no choice: {one:?} and {other:?} both ask {model:?}"));
    }
    known.choices = Some(Choices { mode, realtime: Some(realtime), deep: Some(deep) });
    Ok(known)
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
