pub enum Colour {
    Red,
    Green,
    Blue,
}

pub fn name(colour: &Colour) -> &'static str {
    match colour {
        Colour::Red => "red",
        Colour::Green => "green",
        Colour::Blue => "blue",
    }
}
