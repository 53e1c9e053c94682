//! Files of Apache Parquet. A file is readable only when it has its footer. So all rows are written
//! together, and the file has another name until it is complete.
//!
//! Columns have the names of EC2's files, with underscores for hyphens. A missing value is null.

use std::fs::File;
use std::io;
use std::sync::Arc;

use parquet::basic::{Compression, LogicalType, Repetition, Type as PhysicalType};
use parquet::data_type::{ByteArray, ByteArrayType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;
use srd_card::observe::{Record, Value, version_of};
use srd_vpc::object::{FieldType, LogField};

/// Maximum number of rows in a file.
pub(crate) const ROWS_MAX: usize = 65_536;

/// The values of one field. A row without a value of the field has no entry.
#[derive(Debug)]
enum Column {
    Text(Vec<ByteArray>),
    Int32(Vec<i32>),
    Int64(Vec<i64>),
}

/// Rows that wait until a file is written.
#[derive(Debug)]
pub(crate) struct Rows {
    fields: Vec<LogField>,
    /// For each field its values, and for each row whether it has a value (1 or 0).
    columns: Vec<(Column, Vec<i16>)>,
    count: usize,
}

impl Rows {
    pub(crate) fn new(fields: &[LogField]) -> Self {
        let column = |field: &LogField| match field.kind() {
            FieldType::Text => Column::Text(Vec::new()),
            FieldType::Int32 => Column::Int32(Vec::new()),
            FieldType::Int64 => Column::Int64(Vec::new()),
        };
        let columns = fields.iter().map(|field| (column(field), Vec::new())).collect();
        Self { fields: fields.to_vec(), columns, count: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }

    pub(crate) fn is_full(&self) -> bool {
        self.count >= ROWS_MAX
    }

    pub(crate) fn push(&mut self, record: &Record<'_>) {
        let version = version_of(&self.fields);
        for (field, (column, there)) in self.fields.iter().zip(&mut self.columns) {
            let is_there = match (record.value(*field, version), column) {
                (Value::None, _) => false,
                (Value::Text(text), Column::Text(all)) => {
                    all.push(ByteArray::from(text.as_bytes().to_vec()));
                    true
                }
                (Value::Number(number), Column::Int32(all)) => {
                    all.push(i32::try_from(number).unwrap_or(i32::MAX));
                    true
                }
                (Value::Number(number), Column::Int64(all)) => {
                    all.push(number);
                    true
                }
                // The type of a field determines the type of its values.
                (Value::Text(_), Column::Int32(_) | Column::Int64(_))
                | (Value::Number(_), Column::Text(_)) => false,
            };
            there.push(is_there.into());
        }
        self.count += 1;
    }

    /// Writes all rows to a file.
    pub(crate) fn write(&self, file: File) -> io::Result<()> {
        self.write_to(file).map_err(|error| match error {
            ParquetError::External(error) => match error.downcast::<io::Error>() {
                Ok(error) => *error,
                Err(error) => io::Error::other(error),
            },
            error => io::Error::other(error),
        })
    }

    fn write_to(&self, file: File) -> Result<(), ParquetError> {
        let columns = self.fields.iter().map(|field| type_of(*field));
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        let schema = Type::group_type_builder("record").with_fields(columns).build()?;
        let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
        let mut writer = SerializedFileWriter::new(file, Arc::new(schema), Arc::new(properties))?;
        let mut group = writer.next_row_group()?;
        for (column, there) in &self.columns {
            let Some(mut to) = group.next_column()? else { break };
            let there = Some(&there[..]);
            match column {
                Column::Text(all) => to.typed::<ByteArrayType>().write_batch(all, there, None)?,
                Column::Int32(all) => to.typed::<Int32Type>().write_batch(all, there, None)?,
                Column::Int64(all) => to.typed::<Int64Type>().write_batch(all, there, None)?,
            };
            to.close()?;
        }
        group.close()?;
        let file = writer.into_inner()?;
        file.sync_all()?;
        Ok(())
    }
}

fn type_of(field: LogField) -> Result<Arc<Type>, ParquetError> {
    let (physical, logical) = match field.kind() {
        FieldType::Text => (PhysicalType::BYTE_ARRAY, Some(LogicalType::String)),
        FieldType::Int32 => (PhysicalType::INT32, None),
        FieldType::Int64 => (PhysicalType::INT64, None),
    };
    let name = field.name().replace('-', "_");
    let column = Type::primitive_type_builder(&name, physical).with_logical_type(logical);
    Ok(Arc::new(column.with_repetition(Repetition::OPTIONAL).build()?))
}
