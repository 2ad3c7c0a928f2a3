pub enum Colour {
    Red,
    Green,
}

pub fn name(colour: &Colour) -> &'static str {
    match colour {
        Colour::Red => "red",
        Colour::Green => "green",
    }
}
