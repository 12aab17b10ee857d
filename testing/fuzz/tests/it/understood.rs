//! The code under test understands a target's valid input, so that damage to it reaches everything;
//! and a case is the same each time.

use fuzz::target::Category;

#[test]
fn generated_cases_decode() {
    println!("seeds 0 to 200");
    for target in fuzz::targets().iter().filter(|target| target.part == Category::Decoders) {
        let mut refused = 0;
        let cases = if target.name == "kernel-messages" { 10 } else { 200 };
        for seed in 0..cases {
            let input = (target.make)(&mut fastrand::Rng::with_seed(seed));
            refused += u32::from(!(target.run)(&input));
        }
        // Queries are composed of words that do not always fit.
        let most = match target.name {
            "find-arguments" | "search-box" | "regex" => 190,
            _ => 20,
        };
        assert!(refused <= most, "{}: {refused} of {cases} were refused", target.name);
    }
}

#[test]
fn a_case_follows_from_its_numbers() {
    for target in fuzz::targets() {
        assert_eq!(target.case(3, 17), target.case(3, 17), "{}", target.name);
        let different = (0..20).any(|number| target.case(3, number) != target.case(4, number));
        assert!(different || target.name == "blob-head", "{}", target.name);
    }
}
