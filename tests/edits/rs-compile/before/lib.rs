pub fn shout(text: &str) -> String {
    let loud = text.to_uppercase();
    loud.push('!');
    loud
}
