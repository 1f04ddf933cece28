//! `--set NAME=VALUE`: sets a setting by name, on every subject of the run that has it.

use super::{Failure, unknown};
use flagstone::commit::Kind;
use flagstone::settings::{Configurable, Setting, Settings};
use flagstone_host::Stack;
use flagstone_host::buffer::PolicyKind;
use serde_json::{Value, json};

/// The settings given by `--set`.
#[derive(Debug, Clone)]
pub(crate) struct Given(Vec<One>);

#[derive(Debug, Clone)]
struct One {
    /// The owner, if one was given: `OWNER.NAME=VALUE`.
    owner: Option<String>,
    name: String,
    value: String,
}

/// Something that has settings, and their names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Owner {
    name: &'static str,
    settings: Vec<&'static str>,
}

impl Owner {
    pub(crate) fn of(info: &impl Configurable) -> Owner {
        Owner {
            name: info.name(),
            settings: info.settings().map(|setting| setting.name).collect(),
        }
    }

    /// All protocols as owners of settings.
    pub(crate) fn protocols() -> Vec<Owner> {
        let all = Kind::ALL.iter();
        all.map(|kind| Owner::of(kind.info())).collect()
    }

    /// All parts of database stacks as owners of settings.
    pub(crate) fn of_stacks() -> Vec<Owner> {
        let stacks = Stack::all().into_iter();
        let policies = PolicyKind::ALL.iter();
        once_each(
            stacks
                .map(|stack| Owner::of(stack.manager()))
                .chain(Owner::protocols())
                .chain(policies.map(|kind| Owner::of(kind.info()))),
        )
    }
}

/// Removes duplicate owners.
pub(crate) fn once_each(owners: impl IntoIterator<Item = Owner>) -> Vec<Owner> {
    let mut found: Vec<Owner> = Vec::new();
    for owner in owners {
        if !found.contains(&owner) {
            found.push(owner);
        }
    }
    found
}

impl Given {
    /// Parses pairs of the form `[OWNER.]NAME=VALUE`.
    pub(crate) fn parse(pairs: &[String]) -> Result<Given, Failure> {
        let one = |pair: &String| {
            let Some((name, value)) = pair.split_once('=') else {
                let why = format!("--set {pair}: must be NAME=VALUE");
                return Err(Failure::Usage(why));
            };
            let (owner, name) = match name.trim().rsplit_once('.') {
                Some((owner, name)) => (Some(owner.trim().to_string()), name),
                None => (None, name),
            };
            Ok(One {
                owner,
                name: name.trim().into(),
                value: value.trim().into(),
            })
        };
        pairs.iter().map(one).collect::<Result<_, _>>().map(Given)
    }

    /// The given settings that apply to an owner.
    pub(crate) fn of(&self, info: &impl Configurable) -> Settings {
        let owner = Owner::of(info);
        let mut settings = Settings::new();
        for one in self.0.iter().filter(|one| one.is_of(&owner)) {
            settings.set(&one.name, &one.value);
        }
        settings
    }

    /// Checks that each setting belongs to an owner in `run`. `all` has all that could be run.
    pub(crate) fn check(&self, run: &[Owner], all: &[Owner]) -> Result<(), Failure> {
        for one in &self.0 {
            if run.iter().any(|owner| one.is_of(owner)) {
                continue;
            }
            let whose = |owners: &[Owner]| -> Vec<&str> {
                let have = owners.iter().filter(|owner| one.is_of(owner));
                have.map(|owner| owner.name).collect()
            };
            return Err(match (&one.owner, &whose(all)[..]) {
                (None, []) => unknown("setting", &one.name, &names(run, all)),
                (Some(owner), []) => match all.iter().find(|known| known.name == owner) {
                    Some(known) if known.settings.is_empty() => {
                        Failure::Usage(format!("{owner} has no settings"))
                    }
                    Some(known) => {
                        unknown(&format!("setting of {owner}"), &one.name, &known.settings)
                    }
                    None => {
                        let names: Vec<&str> = all.iter().map(|known| known.name).collect();
                        unknown("owner of settings", owner, &names)
                    }
                },
                (Some(owner), _) => Failure::Usage(format!(
                    "--set {owner}.{}: {owner} is not selected: select it, or leave the setting out",
                    one.name
                )),
                (None, [owner]) => Failure::Usage(format!(
                    "--set {}: only {owner} has this setting, and it is not selected: select it, \
                     or leave the setting out",
                    one.name
                )),
                (None, have) => Failure::Usage(format!(
                    "--set {}: only {} have this setting, and none of them is selected: select \
                     one, or leave the setting out",
                    one.name,
                    list(have)
                )),
            });
        }
        Ok(())
    }

    /// Describes which owners in `run` have each setting; `None` if no setting was given.
    pub(crate) fn about(&self, run: &[Owner]) -> Option<String> {
        let each = self.0.iter().map(|one| {
            let have = run.iter().filter(|owner| one.is_of(owner));
            let have: Vec<&str> = have.map(|owner| owner.name).collect();
            format!("{} = {} of {}", one.name, one.value, list(&have))
        });
        let each: Vec<String> = each.collect();
        (!each.is_empty()).then(|| format!("set: {}", each.join("; ")))
    }

    /// Whether a setting called `name` was given, with any owner or none.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|one| one.name == name)
    }

    /// A setting that was given without an owner although both owners have it.
    pub(crate) fn ambiguous(&self, one: &Owner, other: &Owner) -> Option<&str> {
        let both = |given: &&One| given.owner.is_none() && given.is_of(one) && given.is_of(other);
        self.0.iter().find(both).map(|given| given.name.as_str())
    }
}

impl One {
    fn is_of(&self, owner: &Owner) -> bool {
        let named = self.owner.as_ref().is_none_or(|name| name == owner.name);
        named && owner.settings.contains(&self.name.as_str())
    }
}

/// The names of all settings in `run`, or if there are none, in `all`.
fn names(run: &[Owner], all: &[Owner]) -> Vec<&'static str> {
    let of = |owners: &[Owner]| {
        let mut names: Vec<&str> = owners.iter().flat_map(|o| o.settings.clone()).collect();
        names.sort_unstable();
        names.dedup();
        names
    };
    match of(run) {
        names if names.is_empty() => of(all),
        names => names,
    }
}

/// Joins names for a sentence.
fn list(names: &[&str]) -> String {
    match names {
        [most @ .., last] if !most.is_empty() => format!("{} and {last}", most.join(", ")),
        names => names.concat(),
    }
}

/// A setting as JSON, for `--json`.
pub(crate) fn as_json(setting: &Setting) -> Value {
    json!({"name": setting.name, "default": setting.default, "what": setting.what})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(name: &'static str, settings: &[&'static str]) -> Owner {
        Owner {
            name,
            settings: settings.to_vec(),
        }
    }

    fn given(pairs: &[&str]) -> Given {
        let pairs: Vec<String> = pairs.iter().map(|pair| pair.to_string()).collect();
        Given::parse(&pairs).expect("pairs")
    }

    #[test]
    fn a_setting_is_of_all_that_have_it_unless_one_is_named() {
        let (one, two, three) = (
            owner("one", &["zone", "group"]),
            owner("two", &["zone"]),
            owner("three", &[]),
        );
        let run = [one.clone(), two.clone(), three];
        let given = given(&["zone=1", " two.zone = 2 ", "group=x=y"]);
        assert!(given.check(&run, &run).is_ok());
        assert_eq!(
            given.about(&run).expect("some"),
            "set: zone = 1 of one and two; zone = 2 of two; group = x=y of one"
        );
        assert_eq!(given.ambiguous(&one, &two), Some("zone"));
        assert_eq!(Given::parse(&[]).expect("none").about(&run), None);
    }

    #[test]
    fn what_no_run_has_is_answered_with_those_that_have_it() {
        let run = [owner("one", &["zone"]), owner("bare", &[])];
        let all = [&run[..], &[owner("two", &["heads", "zone"])]].concat();
        let why = |pair: &str| match given(&[pair]).check(&run, &all) {
            Err(Failure::Usage(why)) => why,
            _ => panic!("{pair} is refused as wrong use"),
        };
        assert!(why("heads=2").contains("only two has this setting, and it is not selected"));
        assert!(why("two.zone=2").contains("--set two.zone: two is not selected"));
        assert!(why("zoen=2").contains("did you mean `zone`?"));
        assert!(why("bare.zone=2").contains("bare has no settings"));
        assert!(why("one.heads=2").contains("no setting of one `heads`"));
        assert!(why("three.zone=2").contains("no owner of settings `three`"));
        assert!(Given::parse(&["zone".into()]).is_err());
    }
}
