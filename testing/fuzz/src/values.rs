//! Random values of any type that can be decoded: a serde format that generates its input. So every
//! variant of every message is made, and none needs to be listed.

use std::fmt;

use fastrand::Rng;
use serde::de::value::U32Deserializer;
use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error, IntoDeserializer, MapAccess, SeqAccess,
    VariantAccess, Visitor,
};

/// Nesting level of lists and options below which nothing more is generated.
const DEPTH_MAX: u32 = 6;

/// The source of random values; byte strings borrow from `pool`.
pub(crate) struct Values<'p, 'r> {
    pub(crate) random: &'r mut Rng,
    pub(crate) pool: &'p [u8],
    pub(crate) depth: u32,
}

/// Why a value could not be made.
#[derive(Debug)]
pub(crate) struct Unmade;

impl fmt::Display for Unmade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the type refuses the values")
    }
}

impl std::error::Error for Unmade {}

impl Error for Unmade {
    fn custom<T: fmt::Display>(_: T) -> Unmade {
        Unmade
    }
}

impl<'p> Values<'p, '_> {
    fn number(&mut self) -> u64 {
        crate::random::number(self.random)
    }

    fn bytes(&mut self) -> &'p [u8] {
        let from = self.random.usize(..self.pool.len());
        let most = (self.pool.len() - from).min(40);
        &self.pool[from..from + self.random.usize(..=most)]
    }

    fn count(&mut self) -> usize {
        if self.depth >= DEPTH_MAX { 0 } else { self.random.usize(..5) }
    }

    fn below<'s>(&'s mut self) -> Values<'p, 's> {
        Values { random: self.random, pool: self.pool, depth: self.depth + 1 }
    }
}

macro_rules! numbers {
    ($($method:ident, $visit:ident, $type:ty;)*) => {
        $(fn $method<V: Visitor<'p>>(mut self, visitor: V) -> Result<V::Value, Unmade> {
            visitor.$visit(self.number() as $type)
        })*
    };
}

impl<'p> Deserializer<'p> for Values<'p, '_> {
    type Error = Unmade;

    numbers! {
        deserialize_any, visit_u64, u64;
        deserialize_u8, visit_u8, u8;
        deserialize_u16, visit_u16, u16;
        deserialize_u32, visit_u32, u32;
        deserialize_u64, visit_u64, u64;
        deserialize_u128, visit_u128, u128;
        deserialize_i8, visit_i8, i8;
        deserialize_i16, visit_i16, i16;
        deserialize_i32, visit_i32, i32;
        deserialize_i64, visit_i64, i64;
        deserialize_i128, visit_i128, i128;
        deserialize_f32, visit_f32, f32;
        deserialize_f64, visit_f64, f64;
        deserialize_ignored_any, visit_u64, u64;
    }

    fn deserialize_bool<V: Visitor<'p>>(self, visitor: V) -> Result<V::Value, Unmade> {
        visitor.visit_bool(self.random.bool())
    }

    fn deserialize_char<V: Visitor<'p>>(self, visitor: V) -> Result<V::Value, Unmade> {
        visitor.visit_char(self.random.char(..))
    }

    fn deserialize_str<V: Visitor<'p>>(mut self, visitor: V) -> Result<V::Value, Unmade> {
        visitor.visit_string(String::from_utf8_lossy(self.bytes()).into_owned())
    }

    fn deserialize_string<V: Visitor<'p>>(self, visitor: V) -> Result<V::Value, Unmade> {
        self.deserialize_str(visitor)
    }

    fn deserialize_bytes<V: Visitor<'p>>(mut self, visitor: V) -> Result<V::Value, Unmade> {
        visitor.visit_borrowed_bytes(self.bytes())
    }

    fn deserialize_byte_buf<V: Visitor<'p>>(self, visitor: V) -> Result<V::Value, Unmade> {
        self.deserialize_bytes(visitor)
    }

    fn deserialize_option<V: Visitor<'p>>(mut self, visitor: V) -> Result<V::Value, Unmade> {
        if self.depth >= DEPTH_MAX || self.random.bool() {
            return visitor.visit_none();
        }
        visitor.visit_some(self.below())
    }

    fn deserialize_unit<V: Visitor<'p>>(self, visitor: V) -> Result<V::Value, Unmade> {
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'p>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Unmade> {
        visitor.visit_unit()
    }

    fn deserialize_newtype_struct<V: Visitor<'p>>(
        mut self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Unmade> {
        visitor.visit_newtype_struct(self.below())
    }

    fn deserialize_seq<V: Visitor<'p>>(mut self, visitor: V) -> Result<V::Value, Unmade> {
        let left = self.count();
        visitor.visit_seq(Many { values: self.below(), left })
    }

    fn deserialize_tuple<V: Visitor<'p>>(
        mut self,
        left: usize,
        visitor: V,
    ) -> Result<V::Value, Unmade> {
        visitor.visit_seq(Many { values: self.below(), left })
    }

    fn deserialize_tuple_struct<V: Visitor<'p>>(
        self,
        _: &'static str,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, Unmade> {
        self.deserialize_tuple(length, visitor)
    }

    fn deserialize_map<V: Visitor<'p>>(mut self, visitor: V) -> Result<V::Value, Unmade> {
        let left = self.count();
        visitor.visit_map(Many { values: self.below(), left })
    }

    fn deserialize_struct<V: Visitor<'p>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Unmade> {
        self.deserialize_tuple(fields.len(), visitor)
    }

    fn deserialize_enum<V: Visitor<'p>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Unmade> {
        let chosen = self.random.u32(..variants.len() as u32);
        visitor.visit_enum(Chosen { values: self, chosen })
    }

    fn deserialize_identifier<V: Visitor<'p>>(self, visitor: V) -> Result<V::Value, Unmade> {
        self.deserialize_u32(visitor)
    }

    fn is_human_readable(&self) -> bool {
        false
    }
}

struct Many<'p, 'r> {
    values: Values<'p, 'r>,
    left: usize,
}

impl<'p> SeqAccess<'p> for Many<'p, '_> {
    type Error = Unmade;

    fn next_element_seed<T: DeserializeSeed<'p>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Unmade> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        seed.deserialize(self.values.below()).map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left)
    }
}

impl<'p> MapAccess<'p> for Many<'p, '_> {
    type Error = Unmade;

    fn next_key_seed<K: DeserializeSeed<'p>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Unmade> {
        self.next_element_seed(seed)
    }

    fn next_value_seed<V: DeserializeSeed<'p>>(&mut self, seed: V) -> Result<V::Value, Unmade> {
        seed.deserialize(self.values.below())
    }
}

struct Chosen<'p, 'r> {
    values: Values<'p, 'r>,
    chosen: u32,
}

impl<'p, 'r> EnumAccess<'p> for Chosen<'p, 'r> {
    type Error = Unmade;
    type Variant = Values<'p, 'r>;

    fn variant_seed<V: DeserializeSeed<'p>>(
        self,
        seed: V,
    ) -> Result<(V::Value, Values<'p, 'r>), Unmade> {
        let index: U32Deserializer<Unmade> = self.chosen.into_deserializer();
        Ok((seed.deserialize(index)?, self.values))
    }
}

impl<'p> VariantAccess<'p> for Values<'p, '_> {
    type Error = Unmade;

    fn unit_variant(self) -> Result<(), Unmade> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'p>>(mut self, seed: T) -> Result<T::Value, Unmade> {
        seed.deserialize(self.below())
    }

    fn tuple_variant<V: Visitor<'p>>(self, length: usize, v: V) -> Result<V::Value, Unmade> {
        self.deserialize_tuple(length, v)
    }

    fn struct_variant<V: Visitor<'p>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Unmade> {
        self.deserialize_tuple(fields.len(), visitor)
    }
}
